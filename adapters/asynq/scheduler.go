package asynqlocker

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/adapters/leader"
)

// Scheduler is an *asynq.Scheduler or *asynq.PeriodicTaskManager.
type Scheduler interface {
	Start() error
	Shutdown()
}

// pinger is a scheduler that can ask its store, which Start does not do.
type pinger interface{ Ping() error }

var (
	_ Scheduler = (*asynq.Scheduler)(nil)
	_ Scheduler = (*asynq.PeriodicTaskManager)(nil)
	_ pinger    = (*asynq.Scheduler)(nil)
)

// RunScheduler stands for the leadership of key until ctx ends, and runs a scheduler while this instance leads.
// newScheduler makes one for each term, as asynq's cannot be started again. The options are those of package leader:
// WithLockOptions with a TTL says for how long nobody schedules after a leader has died.
//
// It returns ctx's cause after ctx has ended, newScheduler's error, and the errors of [leader.Elector.Run]. If Start fails, or the
// scheduler has a Ping as *asynq.Scheduler has and that fails, another instance has its turn.
func RunScheduler(ctx context.Context, l locker.Locker, key string, newScheduler func() (Scheduler, error), opts ...leader.Option) error {
	if ctx == nil || newScheduler == nil {
		return fmt.Errorf("asynqlocker: %w", check.Invalid("RunScheduler needs a context and a function; one of them is nil"))
	}
	e, err := leader.New(l, key, opts...)
	if err != nil {
		return fmt.Errorf("asynqlocker: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	return e.Run(ctx, func(ctx context.Context, _ int64) error {
		s, err := newScheduler()
		if err == nil && s == nil {
			err = check.Invalid("the function made no scheduler")
		}
		if err != nil {
			err = fmt.Errorf("asynqlocker: %w", err)
			fail(err) // it will not do better in the next term
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		defer s.Shutdown()
		if p, ok := s.(pinger); ok {
			if err := p.Ping(); err != nil {
				return fmt.Errorf("asynqlocker: the scheduler's store: %w", err)
			}
		}
		<-ctx.Done()
		return nil
	})
}
