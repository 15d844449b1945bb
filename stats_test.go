package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func (b *bench) wantStats(want Stats, why string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.Stats(); got != want {
		b.t.Errorf("at %v: %+v, want %+v: %s", b.at(), got, want, why)
	}
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting, WithTTL(time.Second))
		b.wantStats(Stats{}, "nothing was done yet")
		a := b.lock(t.Context(), "a")
		again := b.lock(a.Context(t.Context()), "a")
		other := b.lock(t.Context(), "b", WithoutRenewal())
		waiting := b.locking(t.Context(), "a")
		b.wantStats(Stats{Locks: 2, Leases: 3, Waiting: 1}, "a was re-entered")
		b.unlock(again)
		b.wantStats(Stats{Locks: 2, Leases: 2, Waiting: 1}, "an inner Unlock")
		b.sched.Close()
		b.until(900 * time.Millisecond)
		if err := a.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.until(time.Second)
		b.wantStats(Stats{Locks: 1, Leases: 1, Waiting: 1}, "the end of b has come, and nobody has looked")
		wantErr(t, other.Unlock(t.Context()), ErrLost, "its end has come")
		synctest.Wait() // until it is tidied up
		b.store.from(opRelease, fail(errRefused))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wantErr(t, a.Unlock(ctx), ErrUnavailable, "the store refuses")
		b.wantStats(Stats{Waiting: 1, Background: 1}, "a release goes on")
		b.store.from(opRelease, obey)
		lease := waiting.wantLease(t)
		b.wantStats(Stats{Locks: 1, Leases: 1}, "it was freed, and granted to the next")
		_ = b.Close()
		b.wantStats(Stats{}, "the Locker is closed")
		_ = lease.Unlock(t.Context())
	})
}

// A hand-over changes nothing of what is held; an offer that is not taken is no lock of a
// caller's.
func TestStatsAtTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 1, nil)
		b.wantStats(Stats{Locks: 1, Leases: 1, Waiting: 1}, "one holds, one waits")
		b.unlock(lease)
		next := waiting[0].wantLease(t)
		b.wantStats(Stats{Locks: 1, Leases: 1}, "it was handed over")
		b.unlock(next)
		b.wantStats(Stats{}, "nothing is left")
	})
}

// What is dropped is counted, also what Close drops.
func TestStatsOfWhatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		b := newBench(t, plain, WithObserver(ObserverFunc(func(context.Context, Event) { <-proceed })))
		defer close(proceed)
		b.store.seize("k", "stranger", time.Hour)
		for range maxNotices + 8 {
			_, err := b.TryLock(t.Context(), "k")
			wantErr(t, err, ErrNotAcquired, "it is held")
			synctest.Wait()
		}
		b.wantStats(Stats{DroppedEvents: 7}, "one is being delivered, a thousand wait")
		_ = b.Close()
		b.wantStats(Stats{DroppedEvents: 1007}, "Close has not waited for them")
	})
}
