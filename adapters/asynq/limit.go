package asynqlocker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// Limit bounds how many tasks of a queue run at a time, over all servers. Make it with [NewLimit].
type Limit struct {
	queues map[string]*locker.Semaphore
	set    settings
}

// Option configures a Limit.
type Option interface {
	apply(*settings) error
}

type option func(*settings) error

func (o option) apply(to *settings) error { return o(to) }

type settings struct {
	prefix string
	wait   time.Duration
	pause  time.Duration
	lock   []locker.LockOption
}

// WithPrefix puts prefix before the names of queues, in place of "asynq:queue:".
func WithPrefix(prefix string) Option {
	return option(func(s *settings) error {
		s.prefix = prefix
		return nil
	})
}

// WithWait sets how long a task waits for a permit. It keeps one of its server's workers busy meanwhile; then it goes back
// into the queue. Default 1 s; 0 is one attempt. A task on its last try waits until its own deadline.
func WithWait(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < 0 || d > locker.MaxDuration {
			return check.Invalid("WithWait(%v): want 0s to %v", d, locker.MaxDuration)
		}
		s.wait = d
		return nil
	})
}

// WithRetryDelay sets after how long a task that got no permit is tried again, with as much again of jitter, by
// [Limit.RetryDelay]. Default 5 s.
func WithRetryDelay(d time.Duration) Option {
	return option(func(s *settings) error {
		if d <= 0 || d > locker.MaxDuration {
			return check.Invalid("WithRetryDelay(%v): want more than 0s, at most %v", d, locker.MaxDuration)
		}
		s.pause = d
		return nil
	})
}

// WithLockOptions gives the lock options of the permits: the TTL is after how long those of a server that has died
// are free.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(s *settings) error {
		s.lock = append(s.lock, opts...)
		return nil
	})
}

// NewLimit makes a Limit of queues, with the number of tasks that may run at a time. All servers name the same numbers, see
// [locker.Semaphore]. A queue that is not named has no limit. A wrong argument is an error that matches
// [locker.ErrInvalid]; so is a strategy that keeps no permits.
func NewLimit(l locker.Locker, queues map[string]int, opts ...Option) (*Limit, error) {
	m := &Limit{queues: make(map[string]*locker.Semaphore), set: settings{prefix: "asynq:queue:", wait: time.Second, pause: 5 * time.Second}}
	err := check.Options(opts, func(o Option) error { return o.apply(&m.set) })
	m.set.lock = append(m.set.lock, locker.WithWait(m.set.wait))
	if err == nil {
		err = locker.Validate(l, m.set.prefix+"x", m.set.lock...)
	}
	for name, n := range queues {
		if err != nil {
			break
		}
		m.queues[name], err = locker.NewSemaphore(l, m.set.prefix+name, n)
	}
	if err != nil {
		return nil, fmt.Errorf("asynqlocker: %w", err)
	}
	return m, nil
}

// errBusy marks a task that got no permit.
var errBusy = errors.New("asynqlocker: the queue's limit is reached")

// Middleware is for asynq's ServeMux.Use. The context of a task ends when its permit is lost. A task that gets no permit
// in time fails with an error that [Limit.IsFailure] and [Limit.RetryDelay] know: give both to asynq's Config.
func (m *Limit) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		name, _ := asynq.GetQueueName(ctx)
		permits := m.queues[name]
		if permits == nil {
			return next.ProcessTask(ctx, task)
		}
		lease, err := permits.Acquire(ctx, m.options(ctx)...)
		if err != nil {
			return fmt.Errorf("%w: %w", errBusy, err) // the store's trouble is no failure of the task, either
		}
		defer lease.Unlock(ctx) //nolint:errcheck // the Locker's log shows it; the TTL frees the permit
		return next.ProcessTask(lease.Context(ctx), task)
	})
}

// options returns the options of a task's permit. asynq archives a task whose last try failed, whatever IsFailure says:
// the last try waits for its permit until its task's own deadline.
func (m *Limit) options(ctx context.Context) []locker.LockOption {
	tries, _ := asynq.GetRetryCount(ctx)
	if most, known := asynq.GetMaxRetry(ctx); known && tries >= most {
		return append(slices.Clip(m.set.lock), locker.WithUnboundedWait())
	}
	return m.set.lock
}

// IsFailure is for asynq.Config.IsFailure: that a task got no permit is no failure, and does not count against its number
// of retries. asynq archives a task nevertheless if its last try got no permit, because of its deadline or the store of locks.
func (m *Limit) IsFailure(err error) bool { return err != nil && !errors.Is(err, errBusy) }

// RetryDelay is for asynq.Config.RetryDelayFunc: a task that got no permit is tried again after [WithRetryDelay], any other after
// asynq.DefaultRetryDelayFunc. asynq looks for such tasks every Config.DelayedTaskCheckInterval, 5 s by default.
func (m *Limit) RetryDelay(n int, err error, task *asynq.Task) time.Duration {
	if errors.Is(err, errBusy) {
		return m.set.pause + rand.N(m.set.pause)
	}
	return asynq.DefaultRetryDelayFunc(n, err, task)
}
