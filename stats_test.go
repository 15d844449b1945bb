package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
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

// Dropped events are counted, also those that Close drops.
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

// lockers is a StatsObserver.
type lockers struct {
	ObserverFunc
	made   []*observed
	closed int
}

type observed struct {
	strategy string
	stats    func() Stats
	events   int
}

func (o *observed) Observe(context.Context, Event) { o.events++ }

func (o *lockers) ObserveLocker(strategy string, stats func() Stats) (each Observer, closed func()) {
	m := &observed{strategy: strategy, stats: stats}
	o.made = append(o.made, m)
	return m, func() { o.closed++ }
}

// Each Locker has an observer of its own, until it is closed.
func TestStatsObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obs := new(lockers)
		a, b := newBench(t, plain, WithObserver(obs)), newBench(t, plain, WithObserver(obs))
		b.lock(t.Context(), "k")
		synctest.Wait()
		if len(obs.made) != 2 || obs.made[0].events != 0 || obs.made[1].events != 1 || obs.made[1].strategy != "fake" {
			t.Fatalf("%d Lockers made, want 2, and 1 event of the second", len(obs.made))
		}
		if n := obs.made[1].stats().Locks; n != 1 {
			t.Errorf("%d locks, want 1", n)
		}
		for i, l := range []Locker{a, b} {
			_ = l.Close()
			_ = l.Close()
			if obs.closed != i+1 {
				t.Errorf("%d Lockers were closed, want %d", obs.closed, i+1)
			}
		}
		if n := obs.made[1].stats().Locks; n != 0 {
			t.Errorf("%d locks after Close, want none", n)
		}
		if _, err := New(struct {
			driver.Driver
			refuses
		}{newFake(), refuses{}}, WithObserver(obs)); err == nil || len(obs.made) != 3 || obs.closed != 3 {
			t.Errorf("New: %v, %d made and %d closed; want an error, 3 and 3", err, len(obs.made), obs.closed)
		}
	})
}

// refuses is a driver's Configure.
type refuses struct{}

func (refuses) Configure(driver.Config) (driver.Settings, error) {
	return driver.Settings{}, ErrInvalid
}
