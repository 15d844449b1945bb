package renewal

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The usual terms of the tests.
const (
	ttl      = 30 * time.Second
	interval = 10 * time.Second
)

var (
	errGone = errors.New("not the owner") // final
	errDown = errors.New("store down")    // transient
)

// A claim is what the tests keep.
type claim struct {
	Entry[*claim]
	name string
}

// event is something the Scheduler did, at a time since the start.
type event struct {
	at    time.Duration
	claim *claim
	err   error
}

// call is one call of Renew.
type call struct {
	at      time.Duration
	shard   string
	batch   []*claim
	timeout time.Duration
}

// bench is a Scheduler and all that it did.
type bench struct {
	*Scheduler[*claim]
	t     *testing.T
	start time.Time

	mu                    sync.Mutex
	calls                 []call
	lost, renewed, failed []event
}

// newBench has renew renew; nil says yes to all at once. onLost may be nil. The
// Scheduler is closed when the test ends.
func newBench(t *testing.T, maxBatch int, renew Func[*claim], onLost func(*claim)) *bench {
	t.Helper()
	b := &bench{t: t, start: time.Now()}
	note := func(to *[]event, c *claim, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		*to = append(*to, event{b.since(), c, err})
	}
	b.Scheduler = New(Config[*claim]{
		MaxBatch: maxBatch,
		Renew: func(ctx context.Context, shard string, batch []*claim, answer func(int, error)) {
			end, _ := ctx.Deadline()
			b.mu.Lock()
			b.calls = append(b.calls, call{b.since(), shard, batch, time.Until(end)})
			b.mu.Unlock()
			if renew != nil {
				renew(ctx, shard, batch, answer)
				return
			}
			for i := range batch {
				answer(i, nil)
			}
		},
		Final: func(err error) bool { return errors.Is(err, errGone) },
		Lost: func(c *claim, cause error) {
			note(&b.lost, c, cause)
			if onLost != nil {
				onLost(c)
			}
		},
		Renewed: func(c *claim, _ time.Duration) { note(&b.renewed, c, nil) },
		Failed:  func(c *claim, err error, _ time.Duration) { note(&b.failed, c, err) },
	})
	t.Cleanup(func() {
		b.Close()
		b.Wait()
	})
	return b
}

func (b *bench) since() time.Duration { return time.Since(b.start) }

// terms are the usual ones, granted now.
func terms() Terms {
	return Terms{Interval: interval, Validity: ttl, Deadline: time.Now().Add(ttl)}
}

func (b *bench) add(name string, t Terms) *claim {
	b.t.Helper()
	c := &claim{name: name}
	if !b.Add(&c.Entry, c, t) {
		b.t.Fatalf("Add(%s) = false, want true: the Scheduler is open", name)
	}
	return c
}

// until lets time pass to d after the start, and what is due then happen.
func (b *bench) until(d time.Duration) {
	time.Sleep(d - b.since())
	synctest.Wait()
}

// times are when Renew was called for c.
func (b *bench) times(c *claim) (at []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, call := range b.calls {
		for _, other := range call.batch {
			if other == c {
				at = append(at, call.at)
			}
		}
	}
	return at
}

func (b *bench) wantTimes(c *claim, why string, want ...time.Duration) {
	b.t.Helper()
	got := b.times(c)
	if len(got) != len(want) {
		b.t.Fatalf("%s was renewed at %v, want %v: %s", c.name, got, want, why)
	}
	for i := range got {
		if got[i] != want[i] {
			b.t.Fatalf("%s was renewed at %v, want %v: %s", c.name, got, want, why)
		}
	}
}

// wantLost checks that c alone was lost, once, with cause at the time given.
func (b *bench) wantLost(c *claim, cause error, at time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lost) != 1 || b.lost[0] != (event{at, c, cause}) {
		b.t.Fatalf("Lost calls: %v, want one, at %v with %q: each loss is told once, when it happens", b.lost, at, cause)
	}
	if !b.Expired(&c.Entry) {
		b.t.Fatal("Expired = false after Lost, want true: what is lost stays lost")
	}
}

func (b *bench) wantNoLoss(why string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lost) != 0 {
		b.t.Fatalf("Lost calls: %v, want none: %s", b.lost, why)
	}
}

func (b *bench) wantDeadline(c *claim, want time.Duration, why string) {
	b.t.Helper()
	if got := b.Deadline(&c.Entry).Sub(b.start); got != want {
		b.t.Fatalf("Deadline is %v after the start, want %v: %s", got, want, why)
	}
}

// count is the length of a list that callbacks append to.
func (b *bench) count(list *[]event) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(*list)
}

// all answers err to all of every batch.
func all(err error) Func[*claim] {
	return func(_ context.Context, _ string, batch []*claim, answer func(int, error)) {
		for i := range batch {
			answer(i, err)
		}
	}
}

// hang answers nothing until ctx is done, as a good Renew does.
func hang(ctx context.Context, _ string, _ []*claim, _ func(int, error)) { <-ctx.Done() }
