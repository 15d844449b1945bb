package conformance_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// brokenWires break what is promised of the way to the store, and of commands that are to be
// one step there.
var brokenWires = map[string]brokenStrategy{
	"grants in two steps": {near(func(d *nearby) {
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			switch id, err := d.(inSteps).look(ctx, req.Key); {
			case err != nil || id != "" && id != req.ID:
				return driver.Answer{}, err
			}
			return driver.Answer{Granted: true}, d.(inSteps).put(ctx, req.Claim)
		}
	}), []string{"GrantIsAtomic", "AcquireInSteps"}},
	"releases in two steps": {near(func(d *nearby) {
		d.release = func(d fullDriver, ctx context.Context, c driver.Claim) error {
			switch id, err := d.(inSteps).look(ctx, c.Key); {
			case err != nil:
				return err
			case id != c.ID:
				return locker.ErrLost
			}
			return d.(inSteps).drop(ctx, c.Key)
		}
	}), []string{"ReleaseIsAtomic", "ReleaseInSteps"}},
	"renews in two steps": {near(func(d *nearby) {
		d.renew = func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error)) {
			for i, c := range claims {
				id, err := d.(inSteps).look(ctx, c.Key)
				switch {
				case err == nil && id != c.ID:
					err = locker.ErrLost
				case err == nil:
					err = d.(inSteps).put(ctx, c)
				}
				answer(i, err)
			}
		}
	}), []string{"RenewIsAtomic", "RenewInSteps"}},
	"breaks in two steps": {breaking(), []string{"BreakInSteps"}},
	"does not mind a command's context": {near(func(d *nearby) {
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			return d.Acquire(context.WithoutCancel(ctx), req)
		}
	}), []string{"FrozenCommandsEnd"}},
	"minds deadlines only": {near(func(d *nearby) {
		d.release = func(d fullDriver, ctx context.Context, c driver.Claim) error {
			only := context.WithoutCancel(ctx)
			if at, ok := ctx.Deadline(); ok {
				var cancel context.CancelFunc
				only, cancel = context.WithDeadline(only, at)
				defer cancel()
			}
			return d.Release(only, c)
		}
	}), []string{"FrozenCommandsEnd"}},
	// On the suite's clock, so that it is too late however slow the machine is.
	"ends a command a while after its context": {near(func(d *nearby) {
		d.release = func(d fullDriver, ctx context.Context, c driver.Claim) error {
			err := d.Release(ctx, c)
			if ctx.Err() != nil {
				late, _ := pace.Timeout(350 * time.Millisecond)
				<-late // the bug
			}
			return err
		}
	}), []string{"FrozenCommandsEnd"}},
	"does not mind a Watch's context": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			return d.Watch(context.WithoutCancel(ctx), key)
		}
	}), []string{"FrozenWatchEnds"}},
	"takes silence for a refusal": {near(func(d *nearby) {
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			if err != nil {
				return driver.Answer{}, nil
			}
			return a, nil
		}
	}), []string{"FrozenCommandsEnd", "RefusedIsTransient", "LostAnswerIsUnknown"}},
	"takes silence for a loss": {near(func(d *nearby) {
		d.renew = func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error)) {
			d.Renew(ctx, claims, func(i int, err error) {
				if err != nil {
					err = locker.ErrLost
				}
				answer(i, err)
			})
		}
	}), []string{"FrozenCommandsEnd", "RefusedIsTransient", "CutReconnects", "LostAnswerIsUnknown"}},
	"says that nothing was applied": {erring(func(err error) error { return &driver.StoreError{Err: err, NotApplied: true} }),
		[]string{"LostAnswerIsUnknown"}},
	"asks in two requests, and reports the second as not applied": {near(func(d *nearby) {
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			if _, err := d.(inSteps).look(ctx, req.Key); err != nil {
				return driver.Answer{}, err
			}
			a, err := d.Acquire(ctx, req)
			if err != nil {
				err = &driver.StoreError{Err: err, NotApplied: true}
			}
			return a, err
		}
	}), []string{"LostAnswerIsUnknown"}},
	"says that trouble is for good": {erring(func(err error) error { return &driver.StoreError{Err: err, Permanent: true} }),
		[]string{"RefusedIsTransient", "LostAnswerIsUnknown"}},
	"does not reconnect": {near(func(d *nearby) {
		var broken atomic.Bool
		d.renew = func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error)) {
			d.Renew(ctx, claims, func(i int, err error) {
				if err != nil {
					broken.Store(true)
				}
				if broken.Load() {
					err = errors.New("use of closed network connection")
				}
				answer(i, err)
			})
		}
	}), []string{"CutReconnects"}},
	"is deaf after a reconnect": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil {
				return nil, err
			}
			return passOn(w, make(chan struct{}, 1)), nil // the bug: its channel stays open
		}
	}), []string{"SignalsAfterCut"}},
	"comes back with one Watch of several": {near(func(d *nearby) {
		var watches atomic.Int64
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil || watches.Add(1) == 1 {
				return w, err
			}
			return passOn(w, make(chan struct{}, 1)), nil // the bug: its channel stays open
		}
	}), []string{"SignalsAfterCut"}},
}

// erring is a strategy that changes the errors of Acquire and Release.
func erring(f func(err error) error) fake {
	change := func(err error) error {
		if err == nil || errors.Is(err, locker.ErrLost) {
			return err
		}
		return f(err)
	}
	return near(func(d *nearby) {
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			return a, change(err)
		}
		d.release = func(d fullDriver, ctx context.Context, c driver.Claim) error { return change(d.Release(ctx, c)) }
	})
}

func breaking() fake {
	v := fakeCounting
	v.near = func(d fullDriver) driver.Driver { return breakingInSteps{d} }
	return v
}

// breakingInSteps looks who holds a key, and frees the key in a second step.
type breakingInSteps struct{ fullDriver }

func (d breakingInSteps) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	return d.fullDriver.(driver.Inspector).Inspect(ctx, key)
}

func (d breakingInSteps) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return d.fullDriver.(driver.Inspector).Keys(ctx, pattern)
}

func (d breakingInSteps) Break(ctx context.Context, h driver.Holder) error {
	switch id, err := d.fullDriver.(inSteps).look(ctx, h.Key); {
	case err != nil:
		return err
	case id != h.ID:
		return locker.ErrLost
	}
	return d.fullDriver.(inSteps).drop(ctx, h.Key)
}
