package locker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// A lock that is held for 10 ms is watched, and renewed once more: what happened before that the store is asked. From
// then on a loss that the store shows is known at once.
func TestLossIsDetected(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []LockOption
		renewed int // when it is watched
	}{
		"renewed":         {nil, 1},
		"without renewal": {[]LockOption{WithoutRenewal()}, 0},
		"with a limit":    {[]LockOption{WithMaxRenewals(3)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDetecting(t, WithTTL(30*time.Second))
				l, before := d.lock(t.Context(), "k", c.opts...), d.lock(t.Context(), "before", c.opts...)
				end := l.Deadline()
				d.store.free("before") // nobody watches it yet
				d.until(detectAfter - 1)
				d.wantWatched("too early")
				d.wantSent(opRenew, 0, "too early")
				d.wantClosedAt(before.Lost(), detectAfter, "the store is asked when the key is watched")
				d.until(2 * detectAfter)
				d.wantWatched("it is held", "k")
				d.wantSent(opRenew, 2*c.renewed, "each is asked about once")
				if moved := l.Deadline().Sub(end); (moved > 0) != (c.renewed > 0) {
					t.Errorf("the Deadline has moved by %v", moved)
				}
				d.until(5 * time.Second)
				d.drop("k")
				d.wantClosedAt(l.Lost(), 5*time.Second, "the store has shown it")
				wantErr(t, l.Err(), ErrLost, "it was deleted")
				synctest.Wait()
			})
		})
	}
}

// A shown loss makes the Locker ask the store, once a second at most. The store's answer decides.
func TestShownLossIsAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour))
		l := d.lock(t.Context(), "k")
		d.until(time.Second)
		d.wantSent(opRenew, 1, "it is watched")
		for range 35 { // over 3.5 s
			d.show("k")
			time.Sleep(100 * time.Millisecond) // on the bubble's clock
		}
		d.wantSent(opRenew, 1+4, "once a second")
		if err := l.Err(); err != nil {
			t.Errorf("Err: %v, want nil: the store says that it is held", err)
		}
		d.unlock(l)
	})
}

// The store is asked once the driver watches: what happens while it begins to is not missed.
func TestWatchedBeforeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour))
		l := d.lock(t.Context(), "k")
		d.shows.trouble(nil, func() error {
			time.Sleep(5 * time.Millisecond) // on the bubble's clock: the driver takes so long
			d.store.free("k")
			return nil
		})
		d.wantClosedAt(l.Lost(), detectAfter+5*time.Millisecond, "the store is asked after that")
	})
}

// A renewal that was sent before the key is watched is not the question.
func TestEarlierRenewalIsNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour), WithRenewInterval(detectAfter-2*time.Millisecond))
		d.store.next(opRenew, replyAfter(5*time.Millisecond))
		l := d.lock(t.Context(), "k")
		d.until(detectAfter - time.Millisecond)
		d.wantSent(opRenew, 1, "it is on its way back")
		d.store.free("k")
		d.wantClosedAt(l.Lost(), detectAfter, "the store is asked when the key is watched")
	})
}

// The driver does not learn of locks that are given back within 10 ms, and the Locker asks nothing about them.
func TestShortLocksAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		long := d.lock(t.Context(), "long")
		d.until(100 * time.Millisecond)
		for i := range 20 {
			l := d.lock(t.Context(), fmt.Sprint(i%2))
			time.Sleep(detectAfter - 1) // on the bubble's clock: not long enough to be watched
			d.unlock(l)
			time.Sleep(time.Nanosecond) // on the bubble's clock: locks of one moment are no subject here
		}
		d.until(time.Second)
		d.wantSent(opRenew, 1, "that is the long one")
		for _, call := range d.shows.open(t).calls {
			if fmt.Sprint(call) != "{[long] []}" {
				t.Errorf("the driver watches %v, want the key of the long lock only", call)
			}
		}
		d.unlock(long)
	})
}

// A lock that is too young when others are watched is watched when its time has come.
func TestYoungLockIsWatchedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		d.lock(t.Context(), "older")
		d.until(detectAfter / 2)
		d.lock(t.Context(), "young")
		d.until(detectAfter)
		d.wantWatched("the other one is too young", "older")
		d.until(2 * detectAfter)
		d.wantWatched("both have been held for long", "older", "young")
	})
}

// A key that is granted anew while the driver watches it is watched for the new claim, and the one before is
// forgotten in the same call. A call names what has changed since the one before it.
func TestNextClaimIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour))
		l, stays := d.lock(t.Context(), "k"), d.lock(t.Context(), "stays")
		d.until(100 * time.Millisecond)
		d.unlock(l)
		l = d.lock(t.Context(), "k")
		d.until(200 * time.Millisecond)
		d.wantWatched("both are held", "k", "stays")
		calls := d.shows.open(t).calls
		if got := fmt.Sprint(calls); got != "[{[k stays] []} {[k] [k]}]" {
			t.Errorf("the driver watches %v", got)
		}
		d.drop("k")
		d.wantClosedAt(l.Lost(), 200*time.Millisecond, "the new claim is watched")
		d.until(300 * time.Millisecond)
		d.wantWatched("the other one is lost", "stays")
		d.unlock(stays)
		d.until(400 * time.Millisecond)
		d.wantWatched("nothing is held")
	})
}

// When nothing is held for half a second the driver watches no more. The next lock opens another LossWatch, a second
// after the one before at the soonest; what was held then is forgotten.
func TestDetectionEndsWhenNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		first := d.lock(t.Context(), "first")
		d.until(3 * time.Second) // far longer than it lingers
		d.wantWatched("it is held", "first")
		d.unlock(first)
		d.until(3*time.Second + detectAfter + detectLinger - 1)
		if d.shows.open(t) == nil {
			t.Error("it has ended early")
		}
		d.until(3*time.Second + detectAfter + detectLinger)
		if d.shows.open(t) != nil || !closed(d.detection.done()) {
			t.Error("the driver watches, want it to have ended: nothing is held")
		}
		d.until(4 * time.Second)
		l := d.lock(t.Context(), "second")
		d.until(4*time.Second + detectAfter)
		d.wantWatched("it is held", "second")
		d.unlock(l)
		d.until(4*time.Second + detectAfter + time.Millisecond)
		l = d.lock(t.Context(), "third") // it comes while the driver lingers
		d.until(5 * time.Second)
		d.wantWatched("it is held", "third")
		if n := len(d.shows.opened); n != 2 {
			t.Errorf("%d LossWatches, want 2", n)
		}
		d.unlock(l)
	})
}

// A lock that is kept without a lease is watched, and the store is asked who has it, but it is not renewed. It is given up when the
// store shows that it is gone.
func TestKeptLockIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithSticky(time.Second))
		d.store.blocks = true
		d.keep("k")
		d.until(100 * time.Millisecond)
		d.wantWatched("it is held", "k")
		d.wantSent(opRenew, 0, "nobody relies on it")
		d.wantSent(opRelease, 0, "it is kept")
		d.drop("k")
		synctest.Wait()
		d.wantSent(opRelease, 1, "it is given up")
	})
}

// A lock that is kept without a lease, and was deleted before the driver watched it, is not granted again.
func TestKeptLockWasDeletedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithSticky(time.Second))
		d.store.blocks = true
		d.keep("k")
		d.store.free("k") // nobody watches it yet
		d.until(100 * time.Millisecond)
		d.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleased: 1}, "what becomes of a kept lock is no event")
		other, err := d.other.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.TryLock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "another Locker has taken it")
		d.unlock(other)
	})
}

// A lock that is kept without a lease is given up if the store does not show who has it.
func TestKeptLockCannotBeLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithSticky(time.Second))
		d.shows.looking = errors.New("NOPERM")
		d.store.blocks = true
		d.keep("k")
		d.until(detectAfter - 1)
		d.wantSent(opRelease, 0, "it is kept")
		d.until(2 * detectAfter)
		d.wantSent(opRelease, 1, "it may be gone")
	})
}

// Permits are not watched.
func TestPermitsAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		c := &claim{e: d.Client, Claim: driver.Claim{Key: "k", Limit: 3, Permits: 1}}
		c.detect()
		c.undetect()
		if d.detection.over != nil || len(d.detection.held)+len(d.detection.stale) > 0 {
			t.Error("a claim of permits is to be watched")
		}
	})
}

// A driver that shows no losses is refused by name.
func TestDetectionNeedsADetector(t *testing.T) {
	_, err := New(newFake(), WithLossDetection())
	wantErr(t, err, ErrInvalid, "the driver shows no losses")
	wantErr(t, err, errors.ErrUnsupported, "and that is why")
}
