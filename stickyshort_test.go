package locker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lock that a renewal has made last for longer than 3 s is not kept: after a crash it would stay for as long.
func TestStickyIsShort(t *testing.T) {
	for name, renew := range map[string]func(*testing.T, *Lease) []Option{
		"the interval is short": func(*testing.T, *Lease) []Option { return []Option{WithRenewInterval(100 * time.Millisecond)} },
		"by hand": func(t *testing.T, l *Lease) []Option {
			if l != nil && l.Renew(t.Context()) != nil {
				t.Error("Renew failed")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSticky(t, time.Second, renew(t, nil)...)
				l := s.lock(t.Context(), "k")
				s.until(150 * time.Millisecond)
				renew(t, l)
				s.wantSent(opRenew, 1, name)
				s.unlock(l)
				s.wantFree("k", name)
				s.keep("k")
			})
		})
	}
}

// A renewal that is answered while the lock is kept ends that.
func TestStickyIsRenewedWhileKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l := s.lock(t.Context(), "k")
		synctest.Wait()
		s.store.next(opRenew, delay(10*time.Millisecond, obey))
		renewing := s.begin(func() (*Lease, error) { return nil, l.Renew(t.Context()) })
		s.unlock(l)
		s.wantKept("k")
		<-renewing.done
		s.wantFree("k", "it would stay for 30 s")
		s.keep("k")
	})
}

// A lock that was renewed when its key was watched is not kept.
func TestStickyIsShortWhereLossesAreDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDetecting(t, WithSticky(time.Second))
		d.store.blocks = true
		l := d.lock(t.Context(), "k")
		d.until(50 * time.Millisecond)
		d.wantSent(opRenew, 1, "it is watched")
		d.unlock(l)
		d.wantFree("k", "it was renewed")
	})
}
