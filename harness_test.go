package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bench is a Locker on a fake driver. It lives in a synctest bubble, so that
// times are exact.
type bench struct {
	*Client
	t     *testing.T
	store *fake
	start time.Time

	mu   sync.Mutex
	seen []Event
}

// newBench makes a Locker with a driver of kind k, which is closed when the test
// ends.
func newBench(t *testing.T, k kind, opts ...Option) *bench {
	t.Helper()
	b := &bench{t: t, store: newFake(), start: time.Now()}
	note := ObserverFunc(func(_ context.Context, e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen = append(b.seen, e)
	})
	l, err := New(b.store.as(k), slices.Insert(opts, 0, Option(WithObserver(note)))...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	b.Client = l
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// at is the time since the start.
func (b *bench) at() time.Duration { return time.Since(b.start) }

// until lets the bubble's clock run to at and all that is due by then happen.
func (b *bench) until(at time.Duration) {
	time.Sleep(at - b.at()) // on the bubble's clock: takes no time
	synctest.Wait()
}

// lock locks key, which is expected to succeed.
func (b *bench) lock(ctx context.Context, key string, opts ...LockOption) *Lease {
	b.t.Helper()
	l, err := b.Lock(ctx, key, opts...)
	if err != nil {
		b.t.Fatalf("Lock(%q) at %v: %v, want a lease", key, b.at(), err)
	}
	return l
}

// unlock unlocks l, which is expected to succeed.
func (b *bench) unlock(l *Lease) {
	b.t.Helper()
	if err := l.Unlock(context.Background()); err != nil {
		b.t.Fatalf("Unlock at %v: %v, want nil", b.at(), err)
	}
}

// locking is a call under way in a goroutine of its own. What it came to may be
// read once the goroutine has ended: see over.
type locking struct {
	done  chan struct{}
	lease *Lease
	err   error
	end   time.Duration
}

// begin runs call beside the test.
func (b *bench) begin(call func() (*Lease, error)) *locking {
	l := &locking{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.lease, l.err = call()
		l.end = b.at()
	}()
	synctest.Wait()
	return l
}

// locking begins a Lock, and returns when it waits or is over.
func (b *bench) locking(ctx context.Context, key string, opts ...LockOption) *locking {
	return b.begin(func() (*Lease, error) { return b.Lock(ctx, key, opts...) })
}

// unlocking begins an Unlock.
func (b *bench) unlocking(ctx context.Context, l *Lease) *locking {
	return b.begin(func() (*Lease, error) { return nil, l.Unlock(ctx) })
}

// over reports whether the call has returned.
func (l *locking) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// wantLease waits for the call, which is to bring a lease.
func (l *locking) wantLease(t *testing.T) *Lease {
	t.Helper()
	<-l.done
	if l.err != nil {
		t.Fatalf("Lock ended at %v with %v, want a lease", l.end, l.err)
	}
	return l.lease
}

// wantEnd says when the call has to have returned.
func (l *locking) wantEnd(t *testing.T, from, to time.Duration, why string) {
	t.Helper()
	<-l.done
	wantBetween(t, "the call returned at", l.end, from, to, why)
}

func wantBetween(t *testing.T, what string, got, from, to time.Duration, why string) {
	t.Helper()
	switch {
	case got >= from && got <= to:
	case from == to:
		t.Errorf("%s %v, want %v: %s", what, got, from, why)
	default:
		t.Errorf("%s %v, want %v to %v: %s", what, got, from, to, why)
	}
}

// wantErr wants err to match want and none of not.
func wantErr(t *testing.T, err, want error, why string, not ...error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v: %s", err, want, why)
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Errorf("error %v matches %v, and must not: %s", err, n, why)
		}
	}
}

// wantSent wants n commands of kind o so far, and returns them.
func (b *bench) wantSent(o op, n int, why string) []command {
	b.t.Helper()
	sent := b.store.sent(o)
	if len(sent) != n {
		b.t.Fatalf("%d commands %q by %v, want %d: %s", len(sent), o, b.at(), n, why)
	}
	return sent
}

// running returns how many calls and pieces of background work there are.
func (b *bench) running() (n int) {
	for i := range b.stripes {
		s := &b.stripes[i]
		s.mu.Lock()
		n += s.calls.N()
		s.mu.Unlock()
	}
	return n + b.background.Len()
}

// keys is how many keys the Locker knows.
func (b *bench) keys() (n int) {
	for i := range b.stripes {
		b.stripes[i].mu.Lock()
		n += len(b.stripes[i].keys)
		b.stripes[i].mu.Unlock()
	}
	return n
}

// wantIdle wants nothing to be left of the locks there were.
func (b *bench) wantIdle(why string) {
	b.t.Helper()
	synctest.Wait()
	if n := b.keys(); n != 0 {
		b.t.Errorf("the Locker knows %d keys at %v, want none: %s", n, b.at(), why)
	}
	if n := b.store.watching(); n != 0 {
		b.t.Errorf("%d watches are open at %v, want none: %s", n, b.at(), why)
	}
	if n := b.running(); n != 0 {
		b.t.Errorf("%d pieces of work go on at %v, want none: %s", n, b.at(), why)
	}
}

// events returns what the observer was told, by kind.
func (b *bench) events() map[EventKind][]Event {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	m := make(map[EventKind][]Event)
	for _, e := range b.seen {
		m[e.Kind] = append(m[e.Kind], e)
	}
	return m
}

// wantEvents wants so many events of each kind; those not named, none.
func (b *bench) wantEvents(want map[EventKind]int, why string) {
	b.t.Helper()
	got := b.events()
	for k := EventAcquired; int(k) < len(eventNames); k++ {
		if n, counts := want[k]; k == EventWaiting && !counts {
			continue
		} else if len(got[k]) != n {
			b.t.Errorf("%d events %q, want %d: %s", len(got[k]), k, want[k], why)
		}
	}
}

// isLost reports whether l's Lost is closed.
func lostIsClosed(l *Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// gaps are the times between commands.
func gaps(cs []command) []time.Duration {
	var ds []time.Duration
	for i := 1; i < len(cs); i++ {
		ds = append(ds, cs[i].at-cs[i-1].at)
	}
	return ds
}

// ended is a context that is done.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// sameStripe returns another key in the stripe of key.
func (b *bench) sameStripe(key string) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("s", i); b.stripeOf(k) == b.stripeOf(key) {
			return k
		}
	}
}
