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
			t.Error("the LossWatch has ended, and Watch is called")
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
