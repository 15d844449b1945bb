package conformance

import (
	"context"
	"errors"
	"slices"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// call is one command of a driver.
type call struct {
	name string
	op   func(ctx context.Context) error
	hint bool // it may succeed without an answer of the store: no lock depends on it
}

// errGranted stands for an Acquire that was answered.
var errGranted = errors.New("it was granted")

// calls returns all commands but Watch that d has by its claims, on claims that hold their keys. They can be given again.
func (d *commander) calls(held, released driver.Claim, free string) []call {
	all := []call{
		{name: "Acquire", op: func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Claim: d.claim(free, d.t.timing.ShortTTL), Fencing: d.t.caps().Fencing})
			return err
		}},
		{name: "Renew", op: func(ctx context.Context) (err error) {
			err = errors.New("no answer")
			d.Renew(ctx, []driver.Claim{held}, func(_ int, e error) { err = e })
			return err
		}},
		{name: "Release", op: func(ctx context.Context) error { return d.Release(ctx, released) }},
	}
	if c, ok := d.Driver.(driver.HoldCounter); ok {
		all = append(all, call{name: "SetHolds", op: func(ctx context.Context) error { return c.SetHolds(ctx, held, 1) }})
	}
	if i, ok := d.Driver.(driver.Inspector); ok && d.t.caps().Admin {
		all = append(all, call{name: "Inspect", op: func(ctx context.Context) error { _, err := i.Inspect(ctx, held.Key); return err }},
			call{name: "Keys", op: func(ctx context.Context) (err error) {
				for _, err = range i.Keys(ctx, held.Key) {
					if err != nil {
						break
					}
				}
				return err
			}},
			call{name: "Break", op: func(ctx context.Context) error {
				return i.Break(ctx, driver.Holder{Key: released.Key, Held: true, ID: released.ID, Owner: released.Owner})
			}})
	}
	return slices.Concat(all, d.signalCalls(held), d.permitCalls(free))
}

// signalCalls returns the commands that have to do with signals.
func (d *commander) signalCalls(held driver.Claim) (all []call) {
	if s, ok := d.Driver.(driver.Signaller); ok && d.t.caps().Signals {
		all = append(all, call{name: "Signal", hint: true, op: func(ctx context.Context) error {
			return s.Signal(ctx, driver.Signal{Kind: driver.SignalRequest, Key: held.Key, Claim: held.ID})
		}}, call{name: "Listen", hint: true, op: func(ctx context.Context) error {
			locker, _ := driver.LockerOf(held.ID)
			l, err := s.Listen(ctx, locker)
			if err == nil {
				l.Close()
			}
			return err
		}})
	}
	if a, ok := d.Driver.(driver.Asker); ok && d.t.caps().Signals {
		all = append(all, call{name: "Ask", op: func(ctx context.Context) error {
			_, _, err := a.Ask(ctx, held.Key)
			return err
		}})
	}
	if l, ok := d.Driver.(driver.LossDetector); ok && d.t.caps().LossDetection {
		all = append(all, call{name: "DetectLoss", hint: true, op: func(ctx context.Context) error {
			w, err := l.DetectLoss(ctx, func(driver.Signal) {})
			if err == nil {
				w.Close()
			}
			return err
		}})
	}
	return all
}

// permitCalls returns the commands that look at permits.
func (d *commander) permitCalls(free string) (all []call) {
	if !d.t.caps().Permits {
		return nil
	}
	if k, ok := d.Driver.(driver.PermitKeeper); ok {
		all = append(all, call{name: "Permits", op: func(ctx context.Context) error {
			_, _, err := k.Permits(ctx, free)
			return err
		}})
	}
	if i, ok := d.Driver.(driver.PermitInspector); ok {
		all = append(all, call{name: "PermitClaims", op: func(ctx context.Context) (err error) {
			for _, err = range i.PermitClaims(ctx, free) {
				if err != nil {
					break
				}
			}
			return err
		}})
	}
	return all
}

// transient checks an error of a command that did not get through.
func (t *T) transient(what string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s returns no error; want one of a store that cannot be reached", what)
	}
	for _, kind := range []error{locker.ErrLost, locker.ErrConflict, locker.ErrInvalid} {
		if errors.Is(err, kind) {
			t.Fatalf("%s returns an error that matches %q: %v; want a plain one: nothing is known", what, kind, err)
		}
	}
	if driver.IsPermanent(err) {
		t.Fatalf("%s returns an error that is Permanent: %v; want one that trying again may help", what, err)
	}
}

// unanswered is transient of a call whose answer did not come.
func (t *T) unanswered(c call, what string, err error) {
	t.Helper()
	if err != nil || !c.hint {
		t.transient(what, err)
	}
}
