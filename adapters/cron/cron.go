// Package cronlocker lets the instances of a program share a job of
// github.com/robfig/cron/v3: one of the instances that have the job due runs it.
//
//	onlyOne, err := cronlocker.OnlyOne(l, "reports/nightly")
//	...
//	c.Schedule(nightly, cron.NewChain(cron.Recover(log), onlyOne).Then(job))
//
// An instance that finds the lock taken skips the run. It also skips a run while its own last
// run goes on: there is no need for cron.SkipIfStillRunning.
//
// While the lock is held, no second run of the job begins. The lock is held for the minimum hold
// of 500 ms at least ([WithMinHold]), for clocks that differ: a short job may be over before it
// becomes due by the clock of the next instance. If the lock were free by then, the job would run
// a second time. After a loss of the lock, two may run: see Limits.
//
// Limits:
//
//   - Two clocks that differ by more than the minimum hold let a job run twice. So does
//     cron.Every, which counts from the start of each process: use a crontab.
//   - A job without a context goes on when its lock is lost. The context of a
//     [ContextJob] ends.
//   - A run is skipped, not delayed. Where an instance crashes in a run, others skip the
//     job until the TTL of the lock ends. Each instance makes one attempt: if the store does not answer when the job is
//     due, no instance runs it.
package cronlocker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/adapters/internal/job"
)

// ContextJob is a job that OnlyOne runs with a context, in place of Run: it ends when the
// lock is lost, with a cause that matches [locker.ErrLost], and
// [locker.LeaseFromContext] has the fencing token. OnlyOne has to be the last
// wrapper of its chain, as the others of package cron hide the method.
type ContextJob interface {
	cron.Job
	RunContext(ctx context.Context)
}

// Func is a function as a [ContextJob].
type Func func(ctx context.Context)

// Run implements [cron.Job], for a Func that is not run by OnlyOne.
func (f Func) Run() { f(context.Background()) }

// RunContext implements [ContextJob].
func (f Func) RunContext(ctx context.Context) { f(ctx) }

// Option configures OnlyOne.
type Option interface {
	apply(*wrapper) error
}

type option func(*wrapper) error

func (o option) apply(to *wrapper) error { return o(to) }

// WithMinHold keeps the lock for at least d: a run that takes less counts as running until
// then, for the context that cron's Stop returns, too. Choose more than what the clocks of
// the instances differ by, and less than the time between two runs. Default 500 ms; 0
// gives the lock back as soon as the job is over.
func WithMinHold(d time.Duration) Option {
	return option(func(w *wrapper) error { return w.SetMinHold(d) })
}

// WithLogger logs to log each run that is skipped because another instance has the
// lock (Info), and what went wrong (Error). Default cron.DefaultLogger, which shows
// errors.
func WithLogger(log cron.Logger) Option {
	return option(func(w *wrapper) error {
		if log == nil {
			return check.Invalid("WithLogger(nil): cron.DiscardLogger logs nothing")
		}
		w.log = log
		return nil
	})
}

// WithContext sets the parent of the jobs' contexts, so that they end when ctx does:
// cron's Stop ends none. No run begins after that. An owner that ctx names ([locker.ContextWithOwner]) is not the
// owner of the job's lock, as runs of one owner would share it.
func WithContext(ctx context.Context) Option {
	return option(func(w *wrapper) error {
		if ctx == nil {
			return check.Invalid("WithContext needs a context")
		}
		w.ctx = ctx
		return nil
	})
}

// WithLockOptions gives the lock options. WithWait counts for nothing: each run makes one attempt.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(w *wrapper) error {
		w.Options = append(w.Options, opts...)
		return nil
	})
}

type wrapper struct {
	job.Settings
	key string
	ctx context.Context
	log cron.Logger
}

// OnlyOne wraps one job. Jobs that are wrapped with the same key exclude each other: leave
// it out of cron.WithChain, which gives all jobs the same wrappers. A wrong argument is
// an error that matches [locker.ErrInvalid].
func OnlyOne(l locker.Locker, key string, opts ...Option) (cron.JobWrapper, error) {
	w := &wrapper{Settings: job.NewSettings(l), key: key, ctx: context.Background(), log: cron.DefaultLogger}
	err := check.Options(opts, func(o Option) error { return o.apply(w) })
	if err == nil {
		err = locker.Validate(l, key, w.Options...)
	}
	if err != nil {
		return nil, fmt.Errorf("cronlocker: %w", err)
	}
	return func(j cron.Job) cron.Job { return cron.FuncJob(func() { w.run(j) }) }, nil
}

func (w *wrapper) run(j cron.Job) {
	hold, err := w.TryLock(w.ctx, w.key)
	switch {
	case errors.Is(err, locker.ErrNotAcquired):
		w.log.Info("skip", "key", w.key, "reason", err)
		return
	case err != nil:
		w.log.Error(err, "skip", "key", w.key)
		return
	}
	defer func() { // after a panic, too
		if err := hold.Unlock(w.ctx); err != nil {
			w.log.Error(err, "unlock", "key", w.key)
		}
	}()
	if j, ok := j.(ContextJob); ok {
		j.RunContext(hold.Lease.Context(w.ctx))
		return
	}
	j.Run()
}
