package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// watchCases ask a [driver.Notifier] itself, whose missing signals a Locker makes up for by
// a look once a second.
var watchCases = group("commands", []Case{
	{Name: "WatchSignals", Rules: []string{"R15"}, Needs: Capabilities{Drivers: true, Notified: true}, Test: testWatchSignals,
		Contract: "a Watch signals each release that comes after it has returned, and keeps the signal until it is received"},
	{Name: "WatchOutlivesItsCall", Rules: []string{"R15"}, Needs: Capabilities{Drivers: true, Notified: true}, Test: testWatchOutlivesItsCall,
		Contract: "a Watch lasts until it is closed, whatever becomes of the context that it was opened under"},
	{Name: "WatchesAreApart", Rules: []string{"R15", "R16"}, Needs: Capabilities{Drivers: true, Notified: true}, Test: testWatchesAreApart,
		Contract: "the Close of a Watch ends no other Watch, of another key or of another driver"},
	{Name: "WatchersOverlap", Rules: []string{"R1", "R14"}, Needs: Capabilities{Drivers: true, Notified: true}, Test: testWatchersOverlap,
		Contract: "of attempts under one Watch that overlap at most one is granted, and its claim holds the key for its TTL"},
})

// watcher is a driver that waits for a key as a Locker does.
type watcher struct {
	*commander
	w driver.Watch
	c driver.Claim
}

// watch waits for a key that is held.
func (d *commander) watch(ctx context.Context, key string) *watcher {
	d.t.Helper()
	notifier, ok := d.Driver.(driver.Notifier)
	if !ok {
		d.t.Fatalf("Notified is claimed, and the driver is no driver.Notifier")
	}
	w, err := notifier.Watch(ctx, key)
	d.t.NoError(err, "Watch")
	waiting := &watcher{commander: d, w: w, c: d.claim(key, time.Minute)}
	if a := waiting.attempt(); a.Granted {
		d.t.Fatalf("Acquire is granted beside a holder")
	}
	return waiting
}

func (w *watcher) attempt() driver.Answer {
	w.t.Helper()
	a, err := w.Acquire(w.t.Context(), driver.Request{Claim: w.c, Fencing: w.t.caps().Fencing, Wait: true})
	w.t.NoError(err, "Acquire of a waiter")
	if a.Granted {
		w.c.Token = a.Token
		if a.Claim != "" {
			w.c.ID = a.Claim
		}
	}
	return a
}

// signalled reports whether there is a signal within d, and how long it took.
func (w *watcher) signalled(d time.Duration) (took time.Duration, ok bool) {
	w.t.Helper()
	start := pace.Now()
	late, stop := pace.Timeout(d)
	defer stop()
	select {
	case _, open := <-w.w.C():
		if !open {
			w.t.Fatalf("a Watch has closed its channel, and nothing was amiss")
		}
		return start.Took(), true
	case <-late:
		return 0, false
	}
}

// ends takes the key, which is free, gives it back and closes the Watch.
func (w *watcher) ends() {
	w.t.Helper()
	w.t.Eventually(w.t.Timing().PollWithin, "a waiter's Acquire of a key that was released", func() bool { return w.attempt().Granted })
	w.t.NoError(w.Release(w.t.Context(), w.c), "Release")
	w.w.Close()
}

// drain takes signals that were made up.
func (w *watcher) drain() {
	select {
	case <-w.w.C():
	default:
	}
}

func testWatchSignals(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	var times []time.Duration
	for round := range 9 {
		c := a.grant(key, time.Minute)
		w := b.watch(t.Context(), key)
		w.drain()
		t.NoError(a.Release(t.Context(), c), "Release")
		if round%3 == 0 { // nobody receives when the signal comes
			t.Sleep(t.Timing().RenewEvery / 2)
		}
		took, ok := w.signalled(t.Timing().PollWithin)
		if !ok {
			t.Fatalf("in round %d a release is not signalled within %v", round+1, t.Timing().PollWithin)
		}
		times = append(times, took)
		w.ends()
	}
	t.Median("the time from Release to the signal", times, t.Timing().WakeWithin)
}

func testWatchOutlivesItsCall(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	for range 2 {
		c := a.grant(key, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		w := b.watch(ctx, key)
		cancel()
		t.Sleep(t.Timing().RenewEvery) // for the end of ctx to do harm
		w.drain()
		t.NoError(a.Release(t.Context(), c), "Release")
		if _, ok := w.signalled(t.Timing().PollWithin); !ok {
			t.Fatalf("a Watch does not signal once the context of its call has ended: ctx is for that call only")
		}
		w.ends()
	}
}

func testWatchesAreApart(t *T) {
	a, b := t.drivers()
	one, other := t.Key("one"), t.Key("other")
	held, heldToo := a.grant(one, time.Minute), a.grant(other, time.Minute)
	stays, first, second := b.watch(t.Context(), one), b.watch(t.Context(), other), t.driver().watch(t.Context(), one)
	first.w.Close()
	second.w.Close()
	stays.drain()
	t.NoError(a.Release(t.Context(), held), "Release")
	if _, ok := stays.signalled(t.Timing().PollWithin); !ok {
		t.Fatalf("a Watch does not signal once another one was closed")
	}
	stays.ends()
	// One that is opened again signals as the first one did.
	again := b.watch(t.Context(), other)
	again.drain()
	t.NoError(a.Release(t.Context(), heldToo), "Release")
	if _, ok := again.signalled(t.Timing().PollWithin); !ok {
		t.Fatalf("a Watch of a key that was watched before does not signal")
	}
	again.ends()
}

// testWatchersOverlap: the Locker lets the next waiter ask when an attempt has not been answered for 300 ms. A driver with
// a queue in the store has one place for all of them.
func testWatchersOverlap(t *T) {
	a, b := t.drivers()
	type grant struct {
		w *watcher
		c driver.Claim
	}
	var grants []grant
	for i := range raceTries / 4 {
		key := t.Key(fmt.Sprint(i))
		held := a.grant(key, time.Minute)
		w := b.watch(t.Context(), key)
		t.NoError(a.Release(t.Context(), held), "Release")
		var mu sync.Mutex
		var claims []driver.Claim
		t.Together(8, func(int) {
			c := b.claim(key, time.Minute)
			answer, err := b.Acquire(t.Context(), driver.Request{Claim: c, Fencing: t.caps().Fencing, Wait: true})
			switch {
			case err != nil && t.caps().Quorum:
				t.transient("Acquire", err)
				_ = b.Release(t.Context(), c)
			case err != nil:
				t.Errorf("Acquire beside others under one Watch: %v", err)
			case answer.Granted:
				if answer.Claim != "" {
					c.ID = answer.Claim
				}
				mu.Lock()
				defer mu.Unlock()
				claims = append(claims, c)
			}
		})
		if len(claims) > 1 {
			t.Fatalf("of 8 attempts under one Watch, beside one another, %d are granted: two callers hold %q", len(claims), key)
		}
		for _, c := range claims {
			grants = append(grants, grant{w, c})
		}
		if len(claims) == 0 { // contenders may refuse one another
			w.ends()
			a.freeSoon(key)
		}
	}
	t.Sleep(t.Timing().TTL / 2) // for commands of refused attempts that are under way
	for _, g := range grants {
		a.refused(g.c.Key, "beside a claim that was granted while other attempts were under way: has one of these taken it along?")
		b.keeps(g.c, "the end of attempts that overlapped its own")
		t.NoError(b.Release(t.Context(), g.c), "Release")
		g.w.w.Close()
		a.freeSoon(g.c.Key)
	}
}
