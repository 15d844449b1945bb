package locker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What a caller does is told before its call returns, with what there is to know.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithPrefix("app:"))
		last := func() Event {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.seen[len(b.seen)-1]
		}
		want := func(want Event, err error, why string) {
			t.Helper()
			got := last()
			if err != nil {
				wantErr(t, got.Err, err, why)
			} else if got.Err != nil {
				t.Errorf("%s: error %v, want none", why, got.Err)
			}
			want.Strategy, want.Key, want.Err, got.Err = "fake", "k", nil, nil
			if got != want {
				t.Errorf("%s: event %+v, want %+v", why, got, want)
			}
		}
		ann := ContextWithOwner(t.Context(), "ann")
		b.store.next(opAcquire, replyAfter(time.Second))
		l := b.lock(ann, "k")
		want(Event{Kind: EventAcquired, Owner: "ann", Token: 1, Duration: time.Second}, nil, "Lock")

		_, err := b.TryLock(ContextWithOwner(t.Context(), "bob"), "k")
		wantErr(t, err, ErrNotAcquired, "ann has it")
		want(Event{Kind: EventNotAcquired, Owner: "bob"}, ErrNotAcquired, "TryLock")

		b.store.next(opRenew, replyAfter(time.Millisecond))
		b.until(11 * time.Second)
		want(Event{Kind: EventRenewed, Owner: "ann", Token: 1, Duration: time.Millisecond}, nil, "renewal")

		b.store.next(opRenew, fail(errReset))
		b.until(20 * time.Second)
		want(Event{Kind: EventRenewFailed, Owner: "ann", Token: 1}, errReset, "failed renewal")

		b.store.from(opRelease, fail(errReset))
		held := b.at() - time.Second
		wantErr(t, l.Unlock(ended(t)), ErrUnavailable, "the store is down")
		want(Event{Kind: EventReleaseFailed, Owner: "ann", Token: 1, Duration: held + releaseBudget}, errReset, "failed Unlock")

		b.store.from(opRelease, nil)
		b.unlock(l)
		want(Event{Kind: EventReleased, Owner: "ann", Token: 1, Duration: held + releaseBudget}, nil, "Unlock")

		l = b.lock(ann, "k", WithMaxHold(time.Second))
		b.until(b.at() + 2*time.Second)
		want(Event{Kind: EventLost, Owner: "ann", Token: 2, Duration: time.Second}, ErrLost, "loss")

		wantErr(t, l.Unlock(t.Context()), ErrLost, "it is lost")
		want(Event{Kind: EventLost, Owner: "ann", Token: 2, Duration: time.Second}, ErrLost, "Unlock after a loss is no event")
	})
}

// slowLog takes a millisecond for each record.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(context.Context, slog.Record) error {
	sleep(context.Background(), nil, time.Millisecond)
	return nil
}

// Every call that may be an attempt is Acquired or NotAcquired, even if its lease
// is lost before it returns or the Locker is closed.
func TestAttemptsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithLogger(slog.New(slowLog{slog.DiscardHandler})))
		const n = 50
		for i := range n {
			if l, err := b.TryLock(t.Context(), fmt.Sprint(i), WithMaxHold(1)); err == nil {
				defer l.Unlock(context.Background())
			}
		}
		b.until(time.Second)
		b.wantEvents(map[EventKind]int{EventAcquired: n, EventLost: n}, "each was granted, and lost a nanosecond later")
		_ = b.Close()
		_, err := b.Lock(t.Context(), "k")
		wantErr(t, err, ErrClosed, "Lock after Close")
		b.wantEvents(map[EventKind]int{EventAcquired: n, EventLost: n, EventNotAcquired: 1}, "an attempt that failed")
	})
}

// An observer's panic is logged and hurts nobody.
func TestPanickingObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		told := make(map[EventKind]int)
		var mu sync.Mutex
		b := newBench(t, plain, WithTTL(3*time.Second), WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			mu.Lock()
			defer mu.Unlock()
			told[e.Kind]++
			panic("observer's own fault")
		})))
		l := b.lock(t.Context(), "k")
		b.until(2500 * time.Millisecond)
		b.unlock(l)
		_ = b.lock(t.Context(), "k", WithMaxHold(time.Second))
		b.until(5 * time.Second)
		_ = b.Close()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for kind, n := range map[EventKind]int{EventAcquired: 2, EventRenewed: 2, EventReleased: 1, EventLost: 1} {
			if told[kind] != n {
				t.Errorf("%d events %q, want %d: a panic stops no later event", told[kind], kind, n)
			}
		}
		if got := strings.Count(log.String(), "observer's own fault"); got != 6 {
			t.Errorf("the log tells of %d panics, want 6:\n%s", got, &log)
		}
	})
}

// A slow observer delays neither renewals nor losses; when a thousand events
// wait, further ones are dropped, and the next one delivered says how many.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 2*maxPendingEvents + 300 // a thousand may be on their way besides
		proceed := make(chan struct{})
		var mu sync.Mutex
		var lost []Event
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			if e.Kind != EventLost {
				return
			}
			<-proceed
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, e)
		})))
		var all []*Lease
		for i := range leases {
			all = append(all, b.lock(t.Context(), fmt.Sprint(i)))
		}
		b.until(990 * time.Millisecond)
		for i, l := range all {
			if !isLost(l) {
				t.Fatalf("lease %d is not lost at %v, want it lost at 988ms: a slow observer delays nobody", i, b.at())
			}
		}
		close(proceed)
		synctest.Wait()
		_ = b.lock(t.Context(), "k")
		b.until(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		dropped := 0
		for _, e := range lost {
			dropped += e.Dropped
		}
		if dropped == 0 || len(lost) < maxPendingEvents || len(lost)+dropped != leases+1 {
			t.Errorf("%d losses told and %d dropped, want %d in all, some of them dropped, %d told at least", len(lost), dropped, leases+1, maxPendingEvents)
		}
	})
}

// Kinds have names, for logs and metrics.
func TestEventKindString(t *testing.T) {
	seen := make(map[string]bool)
	for k := EventAcquired; k <= EventLost; k++ {
		if s := k.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("kind %d is called %q, want a name of its own", k, s)
		} else {
			seen[s] = true
		}
	}
	if s := EventKind(0).String(); s != "unknown" {
		t.Errorf("kind 0 is called %q, want unknown", s)
	}
}
