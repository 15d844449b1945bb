package locker

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// What the store shows is a question: the store's answer decides. It is asked once a second at most.
func TestShownLossIsAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour))
		l := d.lock(t.Context(), "k")
		d.until(time.Second)
		d.wantSent(opRenew, 1, "it is watched")
		for range 35 { // over 3.5 s
			d.show("k")
			time.Sleep(100 * time.Millisecond)
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
			time.Sleep(5 * time.Millisecond)
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

// Locks that are given back within 10 ms are never told the driver, nor asked about.
func TestShortLocksAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		long := d.lock(t.Context(), "long")
		d.until(100 * time.Millisecond)
		for i := range 20 {
			l := d.lock(t.Context(), fmt.Sprint(i%2))
			time.Sleep(detectAfter - 1)
			d.unlock(l)
			time.Sleep(1)
		}
		d.until(time.Second)
		d.wantSent(opRenew, 1, "that is the long one")
		for _, call := range d.shows.open(t).calls {
			if fmt.Sprint(call) != "{[long] []}" {
				t.Errorf("the driver is told %v, want that of the long lock only", call)
			}
		}
		d.unlock(long)
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
			t.Errorf("the driver is told %v", got)
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

// A LossWatch that ends, or fails, is followed by another one, which learns of all that is held; the store is asked about that
// once more. It comes a second after the one before, or 30 s where the driver is refused, or never where it cannot.
func TestDetectionBeginsAnew(t *testing.T) {
	refused := &driver.StoreError{Err: errors.New("NOPERM"), Permanent: true}
	for name, c := range map[string]struct {
		opening, telling func() error
		tries            int // from 5 s to 65 s
	}{
		"opening fails":       {failing(errReset), nil, 60},
		"opening is refused":  {failing(refused), nil, 2},
		"opening panics":      {panicking, nil, 60},
		"watching fails":      {nil, failing(errReset), 60},
		"watching is refused": {nil, failing(refused), 2},
		"it cannot":           {failing(fmt.Errorf("a pooler: %w", errors.ErrUnsupported)), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncedBuilder
				d := newDetecting(t, WithTTL(time.Hour), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				l, early := d.lock(t.Context(), "k"), d.lock(t.Context(), "early")
				d.until(5 * time.Second)
				d.wantSent(opRenew, 2, "they are watched")
				d.shows.trouble(c.opening, c.telling)
				close(d.shows.open(t).done) // the connection breaks
				d.until(65*time.Second - 1)
				if n := len(d.shows.opened) - 1; n < c.tries || n > c.tries+1 {
					t.Errorf("%d tries in a minute, want %d", n, c.tries)
				}
				d.wantWatched("it cannot be")
				d.wantSent(opRenew, 2, "nobody has looked")
				if n := strings.Count(log.String(), "losses are not detected at once"); (n == 1) != (c.tries > 1) || n > 1 {
					t.Errorf("it is logged %d times, want once unless the driver cannot", n)
				}
				d.unlock(early)
				if l.Err() != nil {
					t.Errorf("Err: %v, want nil: locks go on", l.Err())
				}
				d.shows.trouble(nil, nil)
				d.until(100 * time.Second)
				if c.tries == 1 {
					d.wantWatched("the driver is not asked again")
					if len(d.detection.held)+len(d.detection.stale) > 0 || !closed(d.detection.done()) {
						t.Error("something is kept for a driver that cannot detect losses")
					}
					d.unlock(l)
					return
				}
				d.wantWatched("all that is held", "k")
				d.wantSent(opRenew, 3, "the store is asked what has happened meanwhile")
				d.drop("k")
				d.wantClosedAt(l.Lost(), 100*time.Second, "it is watched again")
			})
		})
	}
}

// A driver that turns out to detect no losses is asked once, and nothing is kept for it.
func TestDriverThatCannotDetect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t)
		d.shows.trouble(failing(errors.ErrUnsupported), nil)
		for range 3 {
			l := d.lock(t.Context(), "k")
			d.until(d.at() + 2*time.Second)
			d.unlock(l)
		}
		if n := len(d.shows.opened); n != 1 {
			t.Errorf("it is asked %d times, want once", n)
		}
		if len(d.detection.held)+len(d.detection.stale) > 0 {
			t.Error("claims are kept for it")
		}
	})
}

// Detection begins anew at once where the LossWatch has lasted for a second.
func TestDetectionAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithTTL(time.Hour))
		l := d.lock(t.Context(), "k")
		d.until(5*time.Second - detectAfter)
		w, other := d.shows.open(t), d.lock(t.Context(), "other")
		d.until(5*time.Second - 1)
		close(w.done)
		d.store.free("k") // nobody sees it
		d.until(5 * time.Second)
		if len(w.calls) != 1 {
			t.Error("the driver is told of a lock after its LossWatch has ended")
		}
		d.unlock(other)
		d.wantClosedAt(l.Lost(), 5*time.Second+detectAfter-1, "the store is asked once it is watched again")
		again := d.lock(t.Context(), "k")
		d.until(5*time.Second + 500*time.Millisecond)
		close(d.shows.open(t).done)
		d.until(6*time.Second + detectAfter - 2)
		d.wantWatched("a second after the one before")
		d.until(6*time.Second + detectAfter - 1)
		d.wantWatched("it is held", "k")
		d.unlock(again)
	})
}

// Close ends the LossWatch before it closes the driver, and nothing is watched after it.
func TestCloseWhileDetecting(t *testing.T) {
	for name, at := range map[string]time.Duration{"at once": 0, "about to watch": detectAfter / 2, "watching": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDetecting(t)
				l := d.lock(t.Context(), "k")
				d.until(at)
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				wantBetween(t, "closed at", d.at(), at, at, "nothing is waited for")
				if d.shows.open(t) != nil || !closed(d.detection.done()) {
					t.Error("the driver watches after Close")
				}
				_ = l.Unlock(t.Context())
				if !closed(d.detection.done()) {
					t.Error("detection has begun after Close")
				}
			})
		})
	}
}

// A lock that is kept without a lease is watched, and nobody asks about it: it is given up when the store shows that it is gone.
func TestKeptLockIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithSticky(time.Second))
		d.store.blocks = true
		l := d.lock(t.Context(), "k")
		synctest.Wait() // it listens
		d.unlock(l)
		if d.store.held("k") == "" {
			t.Fatal("it is not kept")
		}
		d.until(100 * time.Millisecond)
		d.wantWatched("it is held", "k")
		d.wantSent(opRenew, 0, "nobody relies on it")
		d.wantSent(opRelease, 0, "it is kept")
		d.drop("k")
		synctest.Wait()
		d.wantSent(opRelease, 1, "it is given up")
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

// syncedBuilder is a strings.Builder for several goroutines.
type syncedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
