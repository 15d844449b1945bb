// Package gocronlocker lets the instances of a program share the jobs of
// github.com/go-co-op/gocron/v2: one of the instances that have a job due runs it.
//
//	jobs, err := gocronlocker.New(l)
//	...
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
//
// An instance that finds the lock of a job taken skips that run; gocron calls the job's
// AfterLockError listener with an error that matches [locker.ErrNotAcquired].
//
// While the lock is held, no second run of the job begins, also if contexts of jobs name the same
// owner ([locker.ContextWithOwner]). The lock is held for the minimum hold of 500 ms at least
// ([WithMinHold]), for clocks that differ: a short job may be over before it becomes due by the
// clock of the next instance. If the lock were free by then, the job would run a second time.
// After a loss of the lock, two may run: see Limits.
//
// Limits, and things to know of gocron:
//
//   - Two clocks that differ by more than the minimum hold let a job run twice. So do
//     schedulers that count from their own start, as gocron.DurationJob does: give such jobs
//     gocron.WithStartAt, or use a crontab.
//   - The lock's name is the job's, which gocron takes from its function if it has no
//     gocron.WithName. The name changes when the function is moved, and two jobs of one
//     function have the same.
//   - gocron cannot notify a job of the loss of its lock: use [Locker.Lease]. It drops
//     the error of Unlock, too: the log of [locker.WithLogger] has it.
//   - A run is skipped, not delayed. Where an instance crashes in a run, others skip the
//     job until the TTL of the lock ends. Each instance makes one attempt: if the store does not answer when the job is
//     due, no instance runs it.
//   - With gocron.WithDistributedElector no job is locked; see [NewElector].
package gocronlocker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/adapters/internal/job"
	"github.com/distlock/locker/adapters/leader"
)

var _ gocron.Locker = (*Locker)(nil)

// Locker is for gocron.WithDistributedLocker and gocron.WithDistributedJobLocker.
type Locker struct {
	jobs    job.Settings
	prefix  string
	running sync.Map // the name of a job → its *locker.Lease
}

// Option configures a Locker.
type Option interface {
	apply(*Locker) error
}

type option func(*Locker) error

func (o option) apply(to *Locker) error { return o(to) }

// WithMinHold keeps the lock of a job for at least d: gocron's Unlock waits until then,
// and so does Shutdown, up to its stop timeout. Choose more than what the clocks of the
// instances differ by, and less than the time between two runs. Default 500 ms; 0 gives
// the lock back as soon as the job is over.
func WithMinHold(d time.Duration) Option {
	return option(func(k *Locker) error { return k.jobs.SetMinHold(d) })
}

// WithPrefix puts prefix before the names of jobs, in place of "gocron:".
func WithPrefix(prefix string) Option {
	return option(func(k *Locker) error {
		k.prefix = prefix
		return nil
	})
}

// WithLockOptions gives the lock options of every job. WithWait counts for nothing: each run makes one attempt.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(k *Locker) error {
		k.jobs.Options = append(k.jobs.Options, opts...)
		return nil
	})
}

// New makes a Locker for gocron. A wrong argument is an error that
// matches [locker.ErrInvalid].
func New(l locker.Locker, opts ...Option) (*Locker, error) {
	k := &Locker{jobs: job.NewSettings(l), prefix: "gocron:"}
	err := check.Options(opts, func(o Option) error { return o.apply(k) })
	if err == nil {
		err = locker.Validate(l, k.prefix+"x", k.jobs.Options...)
	}
	if err != nil {
		return nil, fmt.Errorf("gocronlocker: %w", err)
	}
	return k, nil
}

// Lock implements [gocron.Locker]. It makes one attempt.
func (k *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if name == "" {
		return nil, fmt.Errorf("gocronlocker: %w", check.Invalid("the job has no name"))
	}
	hold, err := k.jobs.TryLock(ctx, k.prefix+name)
	if err != nil {
		return nil, err
	}
	k.running.Store(name, hold.Lease)
	return &lock{hold, k, name}, nil
}

// Lease returns the lease under which this process runs job now, and nil if it does not.
// A job that calls Lease(name).Context(ctx) gets a context that ends when the lock is
// lost; the lease has the fencing token, too. Leave its Unlock to gocron.
func (k *Locker) Lease(job string) *locker.Lease {
	lease, _ := k.running.Load(job)
	l, _ := lease.(*locker.Lease)
	return l
}

type lock struct {
	job.Hold
	k    *Locker
	name string
}

// Unlock implements [gocron.Lock]. ctx may have ended: at Shutdown it has.
func (j *lock) Unlock(ctx context.Context) error {
	j.k.running.CompareAndDelete(j.name, j.Lease)
	return j.Hold.Unlock(ctx)
}

// NewElector is for gocron.WithDistributedElector: all jobs run at the instance that
// leads, and none elsewhere. e has to be standing for election meanwhile, in a goroutine
// of the caller's with a function that waits for the end of its context:
//
//	go e.Run(ctx, func(ctx context.Context, _ int64) error {
//		<-ctx.Done()
//		return nil
//	})
//
// gocron asks when a job is due. A job that runs when the leadership is lost goes on, and
// may run at the next leader, too.
func NewElector(e *leader.Elector) (gocron.Elector, error) {
	if e == nil {
		return nil, fmt.Errorf("gocronlocker: %w", check.Invalid("the Elector is nil"))
	}
	return elector{e}, nil
}

type elector struct{ e *leader.Elector }

func (c elector) IsLeader(context.Context) error {
	if c.e.IsLeader() {
		return nil
	}
	return fmt.Errorf("gocronlocker: another instance leads: %w", locker.ErrNotAcquired)
}
