package locker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/distlock/locker/driver"
)

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
