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

// An event has what there is to know.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithPrefix("app:"))
		want := b.wantEvent
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

		b.store.next(opRenew, replyAfter(time.Millisecond))
		if err := l.Renew(t.Context()); err != nil {
			t.Errorf("Renew: %v, want nil", err)
		}
		want(Event{Kind: EventRenewed, Owner: "ann", Token: 1, Duration: time.Millisecond}, nil, "Renew")

		waiting := b.locking(t.Context(), "k", WithWait(time.Second))
		want(Event{Kind: EventWaiting}, nil, "Lock that waits")
		<-waiting.done
		want(Event{Kind: EventNotAcquired, Duration: time.Second}, ErrNotAcquired, "its end")

		b.store.from(opRelease, fail(errNoPerm))
		held := b.at() - time.Second
		wantErr(t, l.Unlock(t.Context()), ErrUnavailable, "the store refuses")
		want(Event{Kind: EventReleaseFailed, Owner: "ann", Token: 1, Duration: held}, errNoPerm, "failed Unlock")

		b.store.from(opRelease, nil)
		b.unlock(l)
		want(Event{Kind: EventReleaseFailed, Owner: "ann", Token: 1, Duration: held}, errNoPerm, "Unlock called again is no event")

		b.unlock(b.lock(ann, "k"))
		want(Event{Kind: EventReleased, Owner: "ann", Token: 2}, nil, "Unlock")

		l = b.lock(ann, "k", WithMaxHold(time.Second))
		b.until(b.at() + 2*time.Second)
		want(Event{Kind: EventLost, Owner: "ann", Token: 3, Duration: time.Second}, ErrLost, "loss")

		wantErr(t, l.Unlock(t.Context()), ErrLost, "it is lost")
		want(Event{Kind: EventLost, Owner: "ann", Token: 3, Duration: time.Second}, ErrLost, "Unlock after a loss is no event")
	})
}

// wantEvent compares the last event of key "k", but for its time.
func (b *bench) wantEvent(want Event, err error, why string) {
	t := b.t
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	got := b.seen[len(b.seen)-1]
	b.mu.Unlock()
	if err != nil {
		wantErr(t, got.Err, err, why)
	} else if got.Err != nil {
		t.Errorf("%s: error %v, want none", why, got.Err)
	}
	if got.Time.IsZero() || got.Time.After(time.Now()) {
		t.Errorf("%s: it happened at %v, want a time up to now", why, got.Time)
	}
	want.Strategy, want.Key, want.Err, got.Err, got.Time = "fake", "k", nil, nil, time.Time{}
	if got != want {
		t.Errorf("%s: event %+v, want %+v", why, got, want)
	}
}

// Every call that may be an attempt is Acquired or NotAcquired, even if its lease
// is lost before it returns or the Locker is closed.
func TestAttemptsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
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
		if got := strings.Count(log.String(), "observer panicked"); got != 6 {
			t.Errorf("the log tells of %d panics, want 6:\n%s", got, &log)
		}
	})
}

// A blocked observer delays no Lock, renewal or loss; when a thousand events wait,
// further ones are dropped, and the next one delivered says how many.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 2 * maxNotices
		proceed := make(chan struct{})
		var mu sync.Mutex
		told, dropped := 0, 0
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			<-proceed
			mu.Lock()
			defer mu.Unlock()
			told++
			dropped += e.Dropped
		})))
		var all []*Lease
		for i := range leases {
			all = append(all, b.lock(t.Context(), fmt.Sprint(i)))
		}
		if b.at() != 0 {
			t.Errorf("%d Locks took %v, want no time: the observer is none of their concern", leases, b.at())
		}
		b.until(988 * time.Millisecond)
		for i, l := range all {
			if !lostIsClosed(l) {
				t.Fatalf("lease %d is not lost at %v, want it lost at 988ms", i, b.at())
			}
		}
		close(proceed)
		synctest.Wait()
		_ = b.lock(t.Context(), "k")
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if all := 2*leases + 1; dropped == 0 || told < maxNotices || told+dropped != all {
			t.Errorf("%d events told and %d dropped, want %d in all, some of them dropped, %d told at least", told, dropped, all, maxNotices)
		}
	})
}

// userLog is a log handler of the user's.
type userLog struct{ handle func(slog.Record) }

func (userLog) Enabled(context.Context, slog.Level) bool        { return true }
func (h userLog) Handle(_ context.Context, r slog.Record) error { h.handle(r); return nil }
func (h userLog) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h userLog) WithGroup(string) slog.Handler                 { return h }

// A log handler that takes 50 ms delays no loss, no renewal and, but for half a
// second, not Close.
func TestSlowLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := userLog{func(slog.Record) { time.Sleep(50 * time.Millisecond) }} // the handler's work, on the bubble's clock
		b := newBench(t, plain, WithTTL(time.Second), WithLogger(slog.New(slow)))
		var fixed, renewed []*Lease
		for i := range 100 {
			fixed = append(fixed, b.lock(t.Context(), fmt.Sprint("fixed", i), WithoutRenewal()))
			renewed = append(renewed, b.lock(t.Context(), fmt.Sprint("renewed", i)))
		}
		b.store.from(opRenew, fail(errRefused))
		time.AfterFunc(850*time.Millisecond, func() { b.store.from(opRenew, nil) })
		b.until(988 * time.Millisecond)
		for i := range fixed {
			if !lostIsClosed(fixed[i]) {
				t.Fatalf("lease %d is not lost at %v, want it lost at 988ms", i, b.at())
			}
		}
		b.until(3 * time.Second)
		for i := range renewed {
			if lostIsClosed(renewed[i]) {
				t.Fatalf("lease %d is lost, want it renewed once the store was back", i)
			}
		}
		start := b.at()
		_ = b.Close()
		if took := b.at() - start; took > noticesGrace {
			t.Errorf("Close took %v, want %v at most", took, noticesGrace)
		}
		time.Sleep(50 * time.Millisecond) // the record under way; the others are dropped
	})
}

// A log handler that blocks for ever delays no loss; one that calls the Locker and asks
// the lease's contexts does not deadlock.
func TestBlockedAndReentrantLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		defer close(proceed)
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(userLog{func(slog.Record) { <-proceed }})))
		first, second := b.lock(t.Context(), "first"), b.lock(t.Context(), "second")
		b.until(988 * time.Millisecond)
		if !lostIsClosed(first) || !lostIsClosed(second) {
			t.Error("a lease is not lost, want both lost though the logger blocks")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		var mu sync.Mutex
		given := make(chan context.Context, 1)
		done := make(chan struct{})
		reentrant := userLog{func(r slog.Record) {
			if r.Message != "lock lost" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ctx := <-given
			_ = ctx.Value("a user's key")
			l, err := b.Lock(context.Background(), "other")
			if err != nil || l.Unlock(context.Background()) != nil || ctx.Err() == nil {
				t.Errorf("Lock: %v, and the context's %v; want a lease and a context that has ended", err, ctx.Err())
			}
			close(done)
		}}
		b = newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(reentrant)))
		given <- b.lock(t.Context(), "k").Context(t.Context())
		<-done
	})
}

// An observer is given the values of the call's context, and may call Close.
func TestObserverContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		closed := make(chan struct{})
		b = newBench(t, plain, WithObserver(ObserverFunc(func(ctx context.Context, e Event) {
			if e.Kind == EventNotAcquired {
				_ = b.Close()
				close(closed)
			}
			if got := ctx.Value(key{}); got != "trace" || ctx.Done() != nil {
				t.Errorf("%v: the context has %v and ends: %v; want the call's values, without its end", e.Kind, got, ctx.Done() != nil)
			}
		})))
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		l := b.lock(ctx, "k")
		if err := l.Renew(ctx); err != nil {
			t.Errorf("Renew: %v, want nil", err)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Errorf("Unlock: %v, want nil", err)
		}
		cancel()
		_, err := b.Lock(ctx, "k")
		wantErr(t, err, context.Canceled, "the context has ended")
		<-closed
		wantBetween(t, "Close returned at", b.at(), noticesGrace, noticesGrace, "it does not wait for the observer that called it")
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

// A loss is reported before the grant that follows it.
func TestLossIsToldBeforeTheNextGrant(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain, WithTTL(time.Second))
			l := b.lock(t.Context(), "k")
			next := b.locking(t.Context(), "k")
			b.store.free("k")
			b.store.next(opRenew, fail(ErrLost))
			b.unlock(next.wantLease(t))
			wantErr(t, l.Unlock(t.Context()), ErrLost, "it was denied")
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			var order []string
			for _, e := range b.seen {
				if e.Kind != EventWaiting {
					order = append(order, fmt.Sprint(e.Kind, " ", e.Token))
				}
			}
			if got := fmt.Sprint(order); got != "[acquired 1 lost 1 acquired 2 released 2]" {
				t.Errorf("events %v, want them in the order in which they happened", got)
			}
		})
	}
}
