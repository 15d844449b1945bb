package locker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// While signals cannot arrive, ReleaseRequested waits for a second at most, and the Locker goes
// on trying: once a second, or each 30 s where it may not listen.
func TestListeningInTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		late    time.Duration
		refuses error
		waits   time.Duration
		tries   int // in 65 s
	}{
		"silent":       {time.Hour, nil, time.Second, 65},
		"failing":      {0, errReset, 0, 65},
		"refused":      {0, &driver.StoreError{Err: errReset, Permanent: true}, 0, 3},
		"not possible": {0, fmt.Errorf("a pooler: %w", errors.ErrUnsupported), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSignalled(t)
				s.ether.late, s.refuses = c.late, c.refuses
				l := s.lock(t.Context(), "k")
				asked := l.ReleaseRequested()
				wantBetween(t, "ReleaseRequested returned at", s.at(), c.waits, c.waits, "it waits until the Locker listens, or a second")
				l.ReleaseRequested()
				wantBetween(t, "the second ReleaseRequested returned at", s.at(), c.waits, c.waits, "it does not wait again")
				s.until(65 * time.Second)
				if n := len(s.opens()); n < c.tries-1 || n > c.tries+1 {
					t.Errorf("%d tries to listen in 65 s, want about %d", n, c.tries)
				}
				s.ether.mu.Lock()
				s.ether.late, s.refuses = 0, nil
				s.ether.mu.Unlock()
				s.until(100 * time.Second)
				s.request("k")
				if closed(asked) != (c.tries > 1) {
					t.Errorf("requested: %v, want %v", closed(asked), c.tries > 1)
				}
				s.unlock(l)
				s.until(101 * time.Second)
				if s.listening() != 0 {
					t.Error("the Locker listens, want it to have stopped")
				}
			})
		})
	}
}

// After a cut the Locker listens anew, a second after it has begun to at the soonest.
func TestListeningAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l := s.lock(t.Context(), "k")
		asked := l.ReleaseRequested()
		s.cut()
		s.request("k") // it is lost
		if closed(asked) {
			t.Error("requested, want the signal lost")
		}
		s.until(time.Second)
		s.request("k")
		if !closed(asked) || len(s.opens()) != 2 {
			t.Errorf("requested %v after %d Listens, want it after the second", closed(asked), len(s.opens()))
		}
		s.unlock(l)
	})
}

// Close ends the listening before it closes the driver.
func TestCloseWhileListening(t *testing.T) {
	for name, late := range map[string]time.Duration{"listening": 0, "about to": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSignalled(t)
				s.ether.late = late
				l := s.lock(t.Context(), "k")
				go l.ReleaseRequested()
				time.Sleep(100 * time.Millisecond) // on the bubble's clock
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				wantBetween(t, "closed at", s.at(), 100*time.Millisecond, 100*time.Millisecond, "nothing is waited for")
				if s.listening() != 0 {
					t.Error("a Listener is open after Close")
				}
				if closed(l.ReleaseRequested()) {
					t.Error("requested, want the lease lost and no request")
				}
			})
		})
	}
}
