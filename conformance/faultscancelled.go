package conformance

import (
	"context"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
)

func testCancelledWhileSubscribing(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	// For longer than Prompt lasts on the slowest machine.
	t.NoError(t.faults().DelayReply(OpWatch, pace.MaxSlowdown*t.Timing().Prompt+t.Timing().Slack), "delaying a reply")
	before := t.faults().Sent(OpWatch)
	w := t.Start(b, key)
	// Some strategies send nothing for a Watch: those have been refused by then.
	for start := pace.Now(); t.faults().Sent(OpWatch) == before && start.Took() < t.Timing().Slack; {
		time.Sleep(time.Millisecond) // a server reports no event
	}
	w.Cancel()
	t.Is(t.Refused(w, t.Timing().Prompt), context.Canceled)
	w = t.Start(b, key)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin+t.Timing().Slack))
}

// cancelled runs f, cancels its context when it should be under way, and returns
// its error, which must be there at once.
func (t *T) cancelled(what string, f func(ctx context.Context) error) (err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := t.Go(func() { err = f(ctx) })
	t.Sleep(t.Timing().RenewEvery)
	cancel()
	t.Ends(done, t.Timing().Prompt, "the end of "+what+" that was cancelled")
	return err
}

func testCancelledWhileRenewing(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(time.Hour))
	t.NoError(t.faults().DelayReply(OpRenew, t.Timing().Slack), "delaying a reply")
	err := t.cancelled("Renew", lease.Renew)
	t.Is(err, locker.ErrUnavailable, context.Canceled)
	t.Isnt(err, locker.ErrLost)
	t.Open(lease.Lost(), "Lost")
	before := lease.Deadline()
	t.RenewedWithin(t.Timing().Patience, lease)
	if !lease.Deadline().After(before) {
		t.Errorf("Renew does not move the deadline")
	}
	t.Taken(b, key)
	t.Unlock(lease)
	t.FreeWithin(t.Timing().PollWithin, b, key)
}

func testCancelledWhileUnlocking(t *T) {
	a, b, c, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(time.Hour))
	w := t.Wait(b, key)
	t.NoError(t.faults().DelayReply(OpRelease, t.Timing().Slack), "delaying a reply")
	err := t.cancelled("Unlock", lease.Unlock)
	t.Is(err, locker.ErrUnavailable, context.Canceled)
	t.Isnt(err, locker.ErrLost, locker.ErrNotHeld)
	next := t.Granted(w, t.Timing().PollWithin)
	t.UnlockedWithin(t.Timing().Patience, lease)
	t.Is(lease.Unlock(t.Context()), locker.ErrNotHeld)
	t.Taken(c, key)
	t.Unlock(next)
	t.FreeWithin(t.Timing().PollWithin, c, key)
}

func testCancelledWhileReentering(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(time.Hour))
	t.NoError(t.faults().DelayReply(OpSetHolds, t.Timing().Slack), "delaying a reply")
	err := t.cancelled("Lock", func(ctx context.Context) error {
		held, cancel := context.WithCancel(lease.Context(context.Background()))
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		_, err := a.Lock(held, key)
		return err
	})
	t.Is(err, locker.ErrUnavailable, context.Canceled)
	t.Isnt(err, locker.ErrLost)
	t.Open(lease.Lost(), "Lost")
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	t.UnlockedWithin(t.Timing().Patience, inner)
	t.Taken(b, key)
	t.UnlockedWithin(t.Timing().Patience, lease)
	t.FreeWithin(t.Timing().PollWithin, b, key)
}

func testCancelledWhileUnlockingInner(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(time.Hour))
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	t.NoError(t.faults().DelayReply(OpSetHolds, t.Timing().Slack), "delaying a reply")
	err := t.cancelled("Unlock", inner.Unlock)
	t.Is(err, locker.ErrUnavailable, context.Canceled)
	t.Isnt(err, locker.ErrLost, locker.ErrNotHeld)
	t.UnlockedWithin(t.Timing().Patience, inner)
	t.Is(inner.Unlock(t.Context()), locker.ErrNotHeld)
	t.Open(lease.Lost(), "Lost")
	t.Taken(b, key)
	t.Unlock(lease)
	t.FreeWithin(t.Timing().PollWithin, b, key)
}
