package locker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tally counts what an observer is told. It takes a time over each event, or blocks.
type tally struct {
	mu      sync.Mutex
	kinds   map[EventKind]int
	dropped int
	held    map[string]int // by key: Acquired less ends
	takes   time.Duration
	proceed chan struct{} // nil: it does not block
}

// slow has the observer take d over each event, and block until proceed is closed.
func (y *tally) slow(d time.Duration, proceed chan struct{}) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.takes, y.proceed = d, proceed
}

func newTally() *tally { return &tally{kinds: map[EventKind]int{}, held: map[string]int{}} }

func (y *tally) Observe(_ context.Context, e Event) {
	y.mu.Lock()
	takes, proceed := y.takes, y.proceed
	y.mu.Unlock()
	if proceed != nil {
		<-proceed
	}
	time.Sleep(takes) // a slow observer is the subject
	y.mu.Lock()
	defer y.mu.Unlock()
	y.kinds[e.Kind]++
	y.dropped += e.Dropped
	switch e.Kind {
	case EventAcquired:
		y.held[e.Key]++
	case EventReleased, EventReleaseFailed, EventLetExpire, EventLost:
		y.held[e.Key]--
	}
}

// of is how many events of a kind the observer was told.
func (y *tally) of(kind EventKind) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.kinds[kind]
}

// wantHeld wants the grants less the ends to be so many, by what the observer was told.
func (y *tally) wantHeld(t *testing.T, want int, why string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	sum := 0
	for key, n := range y.held {
		if sum += n; n < 0 || n > 1 {
			t.Errorf("%q is held %d times, as the observer was told: %s", key, n, why)
		}
	}
	if sum != want {
		t.Errorf("the observer was told of %d held locks, want %d: %s", sum, want, why)
	}
}

// lockMany takes n locks, slowly enough for the observer.
func (b *bench) lockMany(n int, opts ...LockOption) {
	b.t.Helper()
	for i := range n {
		b.lock(b.t.Context(), fmt.Sprint(i), opts...)
		if i%100 == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
}

// However many locks a Locker holds, all their ends are delivered when it is closed, also to
// an observer that takes its time.
func TestCloseDeliversAllEnds(t *testing.T) {
	for name, c := range map[string]struct {
		locks  int
		takes  time.Duration
		lasted time.Duration // Close
	}{
		"10,000":                  {10_000, 0, 0},
		"of 3,000, one takes 1ms": {3000, time.Millisecond, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newTally()
				b := newBench(t, plain, WithObserver(y))
				b.lockMany(c.locks)
				y.wantHeld(t, c.locks, "all are held")
				y.slow(c.takes, nil)
				start := b.at()
				_ = b.Close()
				wantBetween(t, "Close took", b.at()-start, c.lasted, c.lasted, "the observer gets on")
				y.wantHeld(t, 0, "Close ended all")
				if y.of(EventLost) != c.locks || y.dropped != 0 {
					t.Errorf("%d ends and %d dropped, want %d and none", y.of(EventLost), y.dropped, c.locks)
				}
			})
		})
	}
}

// Close returns within 5 s though the observer gets on slowly; what is dropped then is counted.
func TestCloseWaitsNoLongerThanItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newTally()
		b := newBench(t, plain, WithObserver(y))
		b.lockMany(100)
		y.slow(100*time.Millisecond, nil)
		start := b.at()
		_ = b.Close()
		wantBetween(t, "Close took", b.at()-start, 4*time.Second, 5*time.Second, "its budget")
		st := b.Stats()
		time.Sleep(time.Second) // the event under way
		if n := uint64(y.of(EventLost)) + st.DroppedEvents; n != 100 {
			t.Errorf("%d ends delivered or counted as dropped, want 100", n)
		}
	})
}

// Thousands of renewals push out neither the grants nor the ends of other locks.
func TestRenewalsAreTheFirstToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newTally()
		b := newBench(t, plain, WithObserver(y), WithTTL(3*time.Second))
		b.lockMany(3000)
		proceed := make(chan struct{})
		y.slow(0, proceed)
		b.until(1100 * time.Millisecond) // all are renewed
		for i := range 200 {
			b.unlock(b.lock(t.Context(), fmt.Sprint("another", i)))
		}
		close(proceed)
		synctest.Wait()
		y.wantHeld(t, 3000, "200 others came and went")
		if y.of(EventAcquired) != 3200 || y.of(EventReleased) != 200 || y.dropped == 0 {
			t.Errorf("told %v, and %d were dropped: want 3200 grants and 200 ends, and renewals dropped", y.kinds, y.dropped)
		}
	})
}

// An observer that blocks is told pairs of a grant and its end, and what waits for it is
// bounded by the locks held and a thousand.
func TestBlockedObserverIsToldPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newTally()
		b := newBench(t, plain, WithObserver(y))
		var all []*Lease
		for i := range 2000 {
			all = append(all, b.lock(t.Context(), fmt.Sprint(i)))
			synctest.Wait()
		}
		proceed := make(chan struct{})
		y.slow(0, proceed)
		for range 5 { // each round fills what room there is
			for _, l := range all {
				b.unlock(l)
			}
			for i := range all {
				all[i] = b.lock(t.Context(), fmt.Sprint(i))
			}
		}
		if waiting := b.notices.events.Len(); waiting > maxNotices+len(all) {
			t.Errorf("%d events wait, want %d at most", waiting, maxNotices+len(all))
		}
		close(proceed)
		synctest.Wait()
		y.wantHeld(t, 0, "all grants that it was told of have ended") // those of now were dropped
		for _, l := range all {
			b.unlock(l)
		}
		synctest.Wait()
		y.wantHeld(t, 0, "of what was dropped the ends are, too")
	})
}

// blockingAttrs is a log handler that blocks when it is derived.
type blockingAttrs struct {
	userLog
	proceed chan struct{}
}

func (h blockingAttrs) WithAttrs([]slog.Attr) slog.Handler { <-h.proceed; return h.userLog }
func (h blockingAttrs) WithGroup(string) slog.Handler      { <-h.proceed; return h.userLog }

// A driver that derives a Logger of the one it was given is not held up by the user's handler.
func TestDerivingALoggerDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		h := blockingAttrs{userLog{func(r slog.Record) { got = append(got, r.Message) }}, make(chan struct{})}
		b := newBench(t, plain, WithLogger(slog.New(h)))
		derived := make(chan struct{})
		go func() {
			defer close(derived)
			b.log.With("a", 1).WithGroup("g").Info("from a driver")
		}()
		synctest.Wait()
		select {
		case <-derived:
		default:
			t.Error("With or WithGroup waits for the user's handler")
		}
		close(h.proceed)
		<-derived
		synctest.Wait()
		if len(got) != 1 || got[0] != "from a driver" {
			t.Errorf("logged %q", got)
		}
	})
}

// The next event carries the number of dropped events, whatever is logged before it.
func TestDroppedIsToldWithAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, total := make(chan struct{}), 0
		var once sync.Once
		q := notices{handler: slog.DiscardHandler, observer: ObserverFunc(func(_ context.Context, e Event) {
			once.Do(func() { <-gate })
			total += e.Dropped
		})}
		q.event(t.Context(), Event{})
		synctest.Wait()
		for range maxNotices + 100 {
			q.event(t.Context(), Event{})
		}
		close(gate)
		synctest.Wait()
		q.logger().Info("of a driver's")
		synctest.Wait()
		q.event(t.Context(), Event{})
		synctest.Wait()
		if total != 100 {
			t.Errorf("Dropped says %d, want 100", total)
		}
	})
}

// A blocked observer does not silence the logger, nor the other way round.
func TestObserverAndLoggerAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		defer close(proceed)
		var logged, observed atomic.Int32
		for _, blocked := range []string{"observer", "logger"} {
			b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(),
				WithObserver(ObserverFunc(func(context.Context, Event) {
					if blocked == "observer" {
						<-proceed
					}
					observed.Add(1)
				})),
				WithLogger(slog.New(userLog{func(slog.Record) {
					if blocked == "logger" {
						<-proceed
					}
					logged.Add(1)
				}})))
			b.lock(t.Context(), "k")
			b.until(time.Second)
		}
		if logged.Load() != 2 || observed.Load() != 2 {
			t.Errorf("%d records and %d events delivered, want 2 of each: a grant and its loss", logged.Load(), observed.Load())
		}
	})
}
