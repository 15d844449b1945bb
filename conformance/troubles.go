package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// Trouble is a state of the store's servers in which they cannot do what they are
// asked to.
type Trouble struct {
	// Name is the name of the case, and the argument of [ServerFaults].Cause.
	Name string
	// Permanent trouble needs a person: Lock does not retry.
	Permanent bool
	// Words are the server's, to be found in errors; "" if it says nothing.
	Words string
}

// TroubleCases makes a case of each trouble, for [WithCases]. They need
// [ServerFaults].
func TroubleCases(troubles ...Trouble) []Case {
	var cases []Case
	for _, tr := range troubles {
		c := Case{Name: tr.Name, Group: "faults", Rules: []string{"R11", "R17"}, Needs: Capabilities{Servers: true}, Isolated: true}
		if tr.Permanent {
			c.Contract = "in trouble that needs a person Lock and TryLock are ErrUnavailable at once with the server's words, and a lease goes on when it is over in time"
			c.Test = func(t *T) { testPermanentTrouble(t, tr) }
		} else {
			c.Contract = "TryLock returns ErrUnavailable in transient trouble; Lock and waiters retry, and a lease that outlasts the trouble is kept"
			c.Test = func(t *T) { testTransientTrouble(t, tr) }
		}
		cases = append(cases, c)
	}
	return cases
}

func (t *T) cause(tr Trouble) {
	t.Helper()
	t.NoError(t.servers().Cause(tr.Name), "getting the servers into trouble")
}

// named checks that err names the trouble, unless the caller's time was over
// before the servers had said anything.
func (t *T) named(tr Trouble, err error) {
	t.Helper()
	t.Is(err, locker.ErrUnavailable)
	t.Isnt(err, locker.ErrNotAcquired, locker.ErrLost, locker.ErrNotHeld)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), tr.Words) {
		t.Fatalf("the error does not say %q: %v", tr.Words, err)
	}
}

func testPermanentTrouble(t *T, tr Trouble) {
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	a, b := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker()
	t.Free(b, t.Key("free"))
	held, other := t.Lock(a, t.Key("held"), locker.WithTTL(ttl)), t.Lock(a, t.Key("other"), locker.WithTTL(ttl))
	waiters := map[*locker.Lease]*suite.Waiter{held: t.Wait(b, held.Key()), other: t.Wait(b, other.Key())}
	t.cause(tr)
	for what, lock := range map[string]func(context.Context, string, ...locker.LockOption) (*locker.Lease, error){
		"Lock": b.Lock, "TryLock": b.TryLock,
	} {
		t.Prompt(what+" in trouble", func() {
			ctx, cancel := t.Bounded(t.Context(), 2*t.Timing().Prompt)
			defer cancel()
			_, err := lock(ctx, t.Key("free"))
			t.named(tr, err)
		})
	}
	if err := held.Renew(t.Context()); err != nil {
		t.named(tr, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
	defer cancel()
	err := other.Unlock(ctx)
	t.Isnt(err, locker.ErrLost, locker.ErrNotHeld)
	t.Open(held.Lost(), "Lost")

	t.recover()
	if err != nil {
		t.Is(err, locker.ErrUnavailable)
		t.UnlockedWithin(t.Timing().Patience, other)
	}
	t.RenewedWithin(ttl/2, held)
	t.Open(held.Lost(), "Lost")
	t.Unlock(held)
	for lease, w := range waiters {
		// The waiter may have an error of the trouble, or have needed nothing that did not work.
		t.Ends(w.Done(), t.Timing().PollWithin, "the end of a wait")
		next := w.Lease
		if w.Err != nil {
			t.named(tr, w.Err)
			next, err = t.LockWithin(t.Timing().PollWithin, b, lease.Key())
			t.NoError(err, "Lock when the trouble is over")
		}
		t.newer(next.Token(), lease.Token())
		t.Unlock(next)
	}
}

func testTransientTrouble(t *T, tr Trouble) {
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	var events suite.EventLog
	a, b, free := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(&events)), t.Locker(), t.Key("free")
	t.Free(b, free)
	held := t.Lock(a, t.Key("held"), locker.WithTTL(ttl))
	w := t.Wait(b, held.Key())
	t.cause(tr)
	failed := events.Count(locker.EventRenewFailed)
	for what, lock := range map[string]func(ctx context.Context) error{
		"TryLock": func(ctx context.Context) error { _, err := b.TryLock(ctx, free); return err },
		"Lock":    func(ctx context.Context) error { _, err := b.Lock(ctx, free); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		t.Within(t.Timing().ShortTTL+t.Timing().Prompt, what, func() { t.named(tr, lock(ctx)) })
		cancel()
	}
	begun := t.Start(b, free)
	t.Eventually(ttl/2, "a renewal fails", func() bool { return events.Count(locker.EventRenewFailed) > failed })
	t.Open(begun.Done(), fmt.Sprintf("%s: a Lock returns in transient trouble", tr.Name))
	t.Open(held.Lost(), "Lost")

	t.recover()
	t.Unlock(t.Granted(begun, t.Timing().Patience))
	t.RenewedWithin(ttl/2, held)
	t.Open(held.Lost(), "Lost")
	t.Waits(w)
	t.Unlock(held)
	next := t.Granted(w, t.Timing().Patience)
	t.newer(next.Token(), held.Token())
	t.Unlock(next)
}
