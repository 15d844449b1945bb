package conformance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var observerCases = group("observer", []Case{
	{Name: "EventsAddUp", Rules: []string{"R24"}, Locker: true, Test: testEventsAddUp,
		Contract: "each attempt is one event of a grant or a failure, and each grant ends with exactly one release, failed release or loss"},
	{Name: "EventsTell", Rules: []string{"R10", "R11"}, Locker: true, Test: testEventsTell,
		Contract: "events name the strategy, the key without prefix, the owner, the token, how long it took and what went wrong"},
	{Name: "ReentryIsNoEvent", Rules: []string{"R5"}, Locker: true, Test: testReentryIsNoEvent,
		Contract: "re-entry and inner Unlocks are no events"},
	{Name: "PanickingObserver", Rules: []string{"R11"}, Locker: true, Test: testPanickingObserver,
		Contract: "an observer that panics does no harm"},
	{Name: "SlowObserver", Rules: []string{"R11", "R13"}, Locker: true, Test: testSlowObserver,
		Contract: "an observer that takes its time over renewals and losses delays none"},
})

func testEventsAddUp(t *T) {
	var events suite.EventLog
	var attempts atomic.Int32
	key := t.Key("k")
	ls := t.Lockers(2, suite.WithObserver(&events))
	t.Together(6, func(i int) {
		l := ls[i%2]
		for range 8 {
			attempts.Add(1)
			lease, err := lockAnyhow(t, l, key)
			if err != nil {
				// Or ErrUnavailable, if the store took too long to answer.
				t.Isnt(err, locker.ErrInvalid, locker.ErrLost, locker.ErrClosed)
			} else if err := lease.Unlock(t.Context()); err != nil {
				t.Is(err, locker.ErrLost)
			}
		}
	})
	ends := func() int {
		return events.Count(locker.EventReleased) + events.Count(locker.EventReleaseFailed) +
			events.Count(locker.EventLetExpire) + events.Count(locker.EventLost)
	}
	granted := func() int { return events.Count(locker.EventAcquired) }
	told := func() int { return granted() + events.Count(locker.EventNotAcquired) }
	t.Eventually(t.Timing().Slack, "each attempt has its event", func() bool { return told() >= int(attempts.Load()) })
	t.Eventually(t.Timing().Slack, "each grant has an end", func() bool { return ends() >= granted() })
	if n := told(); n != int(attempts.Load()) {
		t.Errorf("%d events for %d attempts", n, attempts.Load())
	}
	if n := events.Dropped(); n > 0 {
		t.Errorf("%d events were dropped", n)
	}
	if !t.caps().Fencing {
		return // without tokens all grants look the same
	}
	grantsHaveEnds(t, events.All())
}

// lockAnyhow is one of the ways to lock; the lease of one of them is lost.
func lockAnyhow(t *T, l locker.Locker, key string) (lease *locker.Lease, err error) {
	switch t.IntN(4) {
	case 0:
		return l.TryLock(t.Context(), key)
	case 1:
		return l.Lock(t.Context(), key, locker.WithWait(5*time.Millisecond))
	case 2:
		lease, err = l.Lock(t.Context(), key, locker.WithTTL(t.Timing().MinTTL), locker.WithoutRenewal())
		if err == nil {
			t.Ends(lease.Lost(), t.Timing().MinTTL+t.Timing().Slack, "the loss of a lease that is not renewed")
		}
		return lease, err
	}
	return l.Lock(t.Context(), key)
}

// grantsHaveEnds checks that each token has as many grants as ends.
func grantsHaveEnds(t *T, events []locker.Event) {
	open := map[int64]int{}
	for _, ev := range events {
		switch ev.Kind {
		case locker.EventAcquired:
			open[ev.Token]++
		case locker.EventReleased, locker.EventReleaseFailed, locker.EventLetExpire, locker.EventLost:
			open[ev.Token]--
		}
	}
	for token, n := range open {
		if n != 0 {
			t.Errorf("token %d has %d more grants than ends", token, n)
		}
	}
}

func testEventsTell(t *T) {
	var events suite.EventLog
	every := t.Timing().RenewEvery
	l := t.Locker(suite.WithObserver(&events), locker.WithPrefix(t.Key("prefix:")), locker.WithRenewInterval(every))
	ctx := locker.ContextWithOwner(t.Context(), "me")
	start := time.Now()
	lease := t.LockUnder(ctx, l, "k")
	t.Eventually(every+t.Timing().Slack, "a renewal", func() bool { return events.Count(locker.EventRenewed) > 0 })
	_, err := l.TryLock(locker.ContextWithOwner(t.Context(), "you"), "k")
	t.Is(err, locker.ErrNotAcquired)
	t.Unlock(lease)
	short := t.LockUnder(ctx, l, "k", locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	t.Eventually(t.Timing().ShortTTL+t.Timing().Slack, "a loss", func() bool { return events.Count(locker.EventLost) > 0 })
	told := []locker.EventKind{locker.EventAcquired, locker.EventNotAcquired, locker.EventReleased}
	t.Eventually(t.Timing().Slack, "an event of each kind", func() bool {
		return !slices.ContainsFunc(told, func(k locker.EventKind) bool { return events.Count(k) == 0 })
	})
	most := time.Since(start)
	for _, ev := range events.All() {
		if ev.Kind == locker.EventNode {
			if ev.Strategy == "" || ev.Node == "" || ev.Key != "" || ev.Dropped != 0 {
				t.Errorf("event %v: %+v", ev.Kind, ev)
			}
			continue
		}
		owner, token, wantErr := "me", lease.Token(), error(nil)
		switch ev.Kind {
		case locker.EventNotAcquired:
			owner, token, wantErr = "you", 0, locker.ErrNotAcquired
		case locker.EventLost:
			token, wantErr = short.Token(), locker.ErrLost
		case locker.EventAcquired:
			if ev.Token == short.Token() {
				token = ev.Token
			}
		}
		if ev.Strategy == "" || ev.Key != "k" || ev.Owner != owner || ev.Token != token || !errors.Is(ev.Err, wantErr) ||
			ev.Duration < 0 || ev.Duration > most || ev.Dropped != 0 {
			t.Errorf("event %v: %+v", ev.Kind, ev)
		}
	}
	_ = short.Unlock(t.Context())
}

func testReentryIsNoEvent(t *T) {
	var events suite.EventLog
	l, key := t.Locker(suite.WithObserver(&events)), t.Key("k")
	others := 0
	counts := func() (acquired, released int) {
		// Events come in order: those of another key are the last.
		t.Unlock(t.Lock(l, t.Key("other")))
		others++
		count := func(kind locker.EventKind, ofKey bool) (n int) {
			for _, e := range events.All() {
				if e.Kind == kind && (e.Key == key) == ofKey {
					n++
				}
			}
			return n
		}
		t.Eventually(t.Timing().Slack, "the events so far", func() bool { return count(locker.EventReleased, false) == others })
		return count(locker.EventAcquired, true), count(locker.EventReleased, true)
	}
	outer := t.Lock(l, key)
	inner := t.LockUnder(outer.Context(t.Context()), l, key)
	t.Unlock(t.LockUnder(inner.Context(t.Context()), l, key))
	t.Unlock(outer)
	if a, r := counts(); a != 1 || r != 0 {
		t.Errorf("%d grants and %d releases while an inner lease is held", a, r)
	}
	t.Unlock(inner)
	if a, r := counts(); a != 1 || r != 1 {
		t.Errorf("%d grants and %d releases after the last Unlock of one acquisition", a, r)
	}
}

func testPanickingObserver(t *T) {
	var seen atomic.Int32
	every := t.Timing().RenewEvery
	l := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(locker.ObserverFunc(func(_ context.Context, _ locker.Event) {
		seen.Add(1)
		panic("an observer's own trouble")
	})))
	other, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	deadline := lease.Deadline()
	n := seen.Load()
	t.Eventually(2*every+t.Timing().Slack, "a renewal", func() bool { return seen.Load() > n && lease.Deadline().After(deadline) })
	_, err := l.TryLock(t.Context(), key)
	t.Is(err, locker.ErrNotAcquired)
	t.Taken(other, key)
	t.Unlock(lease)
	t.Free(other, key)
	t.Is(t.lose(l, key).Unlock(t.Context()), locker.ErrLost)
	t.FreeWithin(t.Timing().PollWithin, l, key)
}

func testSlowObserver(t *T) {
	every := t.Timing().RenewEvery
	stuck, release := make(chan struct{}, 1), make(chan struct{})
	l := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(locker.ObserverFunc(func(_ context.Context, ev locker.Event) {
		if ev.Kind == locker.EventRenewed || ev.Kind == locker.EventLost {
			select {
			case stuck <- struct{}{}:
			default:
			}
			<-release
		}
	})))
	defer close(release)
	other, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	t.Ends(stuck, every+t.Timing().Slack, "an event of a renewal")
	for range 3 {
		deadline := lease.Deadline()
		t.Eventually(every+t.Timing().Slack, "a renewal while an observer is busy", func() bool { return lease.Deadline().After(deadline) })
	}
	t.Taken(other, key)
	short := t.lose(l, t.Key("short"))
	t.Is(short.Unlock(t.Context()), locker.ErrLost)
	t.Unlock(lease)
	t.Free(other, key)
}
