package locker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Under a live context Unlock returns by its end at the latest, under a dead one
// after 5 s; the release goes on meanwhile.
func TestUnlockEnds(t *testing.T) {
	for name, c := range map[string]struct {
		ctx func(*testing.T) (context.Context, context.CancelFunc)
		end time.Duration
		is  error
	}{
		"live": {func(t *testing.T) (context.Context, context.CancelFunc) {
			t.Helper()
			return context.WithTimeout(t.Context(), 300*time.Millisecond)
		}, 300 * time.Millisecond, context.DeadlineExceeded},
		"long-lived": {func(t *testing.T) (context.Context, context.CancelFunc) {
			t.Helper()
			return context.WithTimeout(t.Context(), time.Hour)
		}, releaseBudget, ErrUnavailable},
		"endless": {func(*testing.T) (context.Context, context.CancelFunc) {
			return context.Background(), func() {}
		}, releaseBudget, ErrUnavailable},
		"dead": {func(t *testing.T) (context.Context, context.CancelFunc) {
			t.Helper()
			return ended(t), func() {}
		}, releaseBudget, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				l := b.lock(t.Context(), "k", WithTTL(time.Minute))
				section := l.Context(t.Context())
				b.store.from(opRelease, hang)
				ctx, cancel := c.ctx(t)
				defer cancel()
				unlocking := b.unlocking(ctx, l)
				if section.Err() == nil {
					t.Error("the lease's context is alive, want it ended: the section is over when Unlock is called")
				}
				unlocking.wantEnd(t, c.end, c.end, "the release hangs")
				wantErr(t, unlocking.err, ErrUnavailable, "no answer came", ErrLost, ErrNotHeld)
				wantErr(t, unlocking.err, c.is, "the error tells what ended it")
				if b.keys() != 0 {
					t.Error("the Locker knows the key, want it forgotten: the queue does not wait for a release left behind")
				}
				b.wantEvents(map[EventKind]int{EventAcquired: 1}, "the release goes on in the background")
				b.until(2 * time.Minute)
				sent := b.store.sent(opRelease)
				if n := len(sent); n < 15 || n > 40 {
					t.Errorf("%d releases sent, want 15 to 40: each takes 2s, with pauses between", n)
				}
				wantBetween(t, "the last release was sent at", sent[len(sent)-1].at, 55*time.Second, 63*time.Second, "the TTL of 1m has freed the key by then")
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleaseFailed: 1}, "the key was left to its TTL")
				b.wantIdle("the release was given up")
			})
		})
	}
}

// A context that dies between two looks of Unlock at it was alive at the call:
// Unlock does not wait for the release.
func TestUnlockUnderADyingContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		b.store.next(opRelease, delay(time.Second, obey))
		ctx := &dyingContext{Context: t.Context(), done: make(chan struct{})}
		close(ctx.done)
		wantErr(t, l.Unlock(ctx), ErrUnavailable, "no answer came")
		wantBetween(t, "Unlock returned at", b.at(), 0, 0, "its context ended")
		b.until(2 * time.Second)
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody: the release goes on in the background", held)
		}
	})
}

// dyingContext is alive when it is first asked, and done ever after.
type dyingContext struct {
	context.Context
	done  chan struct{}
	asked atomic.Bool
}

func (c *dyingContext) Done() <-chan struct{} { return c.done }

func (c *dyingContext) Err() error {
	if c.asked.CompareAndSwap(false, true) {
		return nil
	}
	return context.Canceled
}

// After ErrUnavailable Unlock may be called again, and says how the release in the
// background ended; then the lease is done with.
func TestUnlockAgain(t *testing.T) {
	for name, c := range map[string]struct {
		releases []step
		want     error // nil: released
	}{
		"the retry goes through":  {[]step{hang}, nil},
		"applied, its reply lost": {[]step{loseReply}, nil}, // the retry finds nothing: that was us
		"somebody else holds the key by now": {[]step{fail(errRefused), func(c *command) error {
			c.f.seize("k", "thief", time.Hour)
			return c.apply()
		}}, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				l := b.lock(t.Context(), "k", WithTTL(time.Minute))
				b.store.next(opRelease, c.releases...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				wantErr(t, l.Unlock(ctx), ErrUnavailable, "no answer came")
				wantErr(t, l.Renew(t.Context()), ErrNotHeld, "Unlock was called")
				b.until(4 * time.Second)
				err := l.Unlock(t.Context())
				if c.want != nil {
					wantErr(t, err, c.want, "the release found another holder")
				} else if err != nil {
					t.Errorf("second Unlock: %v, want nil: the key was freed", err)
				}
				b.wantSent(opRelease, 2, "the second Unlock had nothing to send")
				for range 2 {
					wantErr(t, l.Unlock(t.Context()), ErrNotHeld, "the lease is done with")
				}
				b.wantIdle("the lease is unlocked")
			})
		})
	}
}

// Once the tries of an Unlock have been given up, another one begins anew.
func TestUnlockAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Minute))
		b.store.from(opRelease, fail(errRefused))
		wantErr(t, l.Unlock(ended(t)), ErrUnavailable, "the store is down")
		b.store.from(opRelease, nil)
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock when the store is back: %v, want nil", err)
		}
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody", held)
		}
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "freed in the end")
	})
}

// When the release in the background has been given up, the next Unlock is a new
// try, not old news.
func TestUnlockAgainAfterTheBackgroundGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Minute))
		b.store.from(opRelease, hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, l.Unlock(ctx), ErrUnavailable, "no answer came")
		b.until(30 * time.Second)
		b.store.from(opRelease, nil)
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock when the store is back: %v, want nil", err)
		}
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody", held)
		}
	})
}

// A release whose reply was lost, found applied after the lease had ended, cannot
// be told from one that came too late.
func TestUnlockAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
		b.until(2 * time.Second)
		at := b.at()
		b.store.next(opRelease, delay(time.Second, obey))
		wantErr(t, l.Unlock(t.Context()), ErrLost, "it had ended")
		wantBetween(t, "Unlock returned at", b.at(), at, at, "nothing hangs on the release of what is lost")
		wantErr(t, l.Unlock(t.Context()), ErrNotHeld, "it was unlocked before")
		b.until(5 * time.Second)
		b.wantSent(opRelease, 1, "the key may be ours all the same in a store whose clock is slow")
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventLost: 1}, "lost once")
		b.wantIdle("the lease is over")
	})
}

// One of concurrent Unlocks takes effect, and the others return ErrNotHeld.
func TestConcurrentUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		b.store.from(opRelease, delay(time.Millisecond, obey))
		var unlocked atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := l.Unlock(t.Context()); err == nil {
					unlocked.Add(1)
				} else {
					wantErr(t, err, ErrNotHeld, "another Unlock is first")
				}
			})
		}
		all.Wait()
		if n := unlocked.Load(); n != 1 {
			t.Errorf("%d Unlocks returned nil, want 1", n)
		}
		b.wantSent(opRelease, 1, "one takes effect")
	})
}

// Renew without an answer leaves the lease as it was, and ends with its context;
// an answer that comes later counts all the same.
func TestRenewWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(10*time.Second), WithoutRenewal())
		b.store.next(opRenew, fail(errReset), replyAfter(2*time.Second))
		before := l.Deadline()
		wantErr(t, l.Renew(t.Context()), ErrUnavailable, "it failed", ErrLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Renew(ctx)
		wantErr(t, err, ErrUnavailable, "no answer came", ErrLost)
		wantErr(t, err, context.DeadlineExceeded, "the context ended it")
		wantBetween(t, "Renew returned at", b.at(), time.Second, time.Second, "its context ended")
		if !l.Deadline().Equal(before) || lostIsClosed(l) {
			t.Errorf("the deadline is %v, want %v: no renewal went through yet", l.Deadline(), before)
		}
		b.until(3 * time.Second)
		if !l.Deadline().Equal(before) {
			t.Errorf("the deadline is %v, want %v: the renewal was sent when the lease was", l.Deadline(), before)
		}
		wantErr(t, l.Renew(ended(t)), ErrUnavailable, "nobody wants the answer")
		b.wantSent(opRenew, 2, "a dead context asks nobody")
	})
}

// Renew that returns after the lease has ended says so.
func TestRenewBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
		b.until(500 * time.Millisecond)
		b.store.from(opRenew, hang)
		wantErr(t, l.Renew(context.Background()), ErrLost, fmt.Sprint("it is ", b.at(), " and the lease ended at 988ms"), ErrUnavailable)
	})
}

// However often Unlock is called while the store is away, the release goes on once, and
// the grant ends with one event.
func TestRepeatedUnlocksEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		l := b.lock(t.Context(), "k")
		b.store.from(opRelease, fail(errRefused))
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			wantErr(t, l.Unlock(ctx), ErrUnavailable, "the store refuses")
			cancel()
		}
		if n := b.background.Len(); n > 1 {
			t.Errorf("%d releases wait in the background, want 1", n)
		}
		b.until(20 * time.Second)
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleaseFailed: 1}, "one end")
	})
}

// A release that the store has refused for good does not keep the release of a further
// Unlock from going on in the background.
func TestReleaseGoesOnAfterPermanentTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		unlock := func(steps ...step) {
			b.store.next(opRelease, steps...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			wantErr(t, l.Unlock(ctx), ErrUnavailable, "the store cannot be used")
			b.until(b.at() + 2*time.Second)
		}
		unlock(fail(errRefused), fail(errNoPerm)) // the second in the background
		b.wantSent(opRelease, 2, "it was refused for good")
		unlock(fail(errRefused))
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want it free: the second release went on", held)
		}
		b.wantIdle("the release went on")
	})
}
