package locker

import (
	"testing"
	"testing/synctest"
	"time"
)

// A semaphore whose store does not answer fails with the outage, within the wait. A key that
// cannot be locked is refused when the semaphore is made.
func TestSemaphoreTellsOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		s, err := NewSemaphore(b.Client, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		b.store.next(opAcquire, obey, hang) // the gate, and the permit
		_, err = s.Acquire(t.Context(), WithWait(300*time.Millisecond))
		wantErr(t, err, ErrUnavailable, "the store did not answer")
		wantBetween(t, "Acquire took", b.at(), 300*time.Millisecond, 600*time.Millisecond, "the wait")
		for what, err := range map[string]error{
			"no permits":  func() error { _, err := NewSemaphore(b.Client, "k", 0); return err }(),
			"no key":      func() error { _, err := NewSemaphore(b.Client, "", 1); return err }(),
			"no RW key":   func() error { _, err := NewRWLock(b.Client, ""); return err }(),
			"zero permit": func() error { _, err := new(Semaphore).Acquire(t.Context()); return err }(),
			"zero reader": func() error { _, err := new(RWLock).RLock(t.Context()); return err }(),
			"zero writer": func() error { _, err := (*RWLock)(nil).Lock(t.Context()); return err }(),
		} {
			wantErr(t, err, ErrInvalid, what)
		}
	})
}
