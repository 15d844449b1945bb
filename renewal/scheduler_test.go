package renewal

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

const s = time.Second

// bench is a Scheduler in a synctest bubble that notes what it fires.
type bench struct {
	*Scheduler[*item]
	t *testing.T

	mu      sync.Mutex
	batches []batch
	hold    map[*item]chan struct{} // Renew waits for it
}

type item struct {
	Entry[*item]
	name    string
	shard   string
	ended   []time.Duration
	renewed []time.Duration
}

type batch struct {
	at    time.Duration
	items []*item
	cause error // why its context had ended when it was let go
}

func newBench(t *testing.T, maxBatch int) *bench {
	t.Helper()
	b := &bench{t: t, hold: make(map[*item]chan struct{})}
	b.Scheduler = New(Config[*item]{
		MaxBatch: maxBatch,
		Shard:    func(i *item) string { return i.shard },
		Ended: func(items []*item) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, i := range items {
				i.ended = append(i.ended, b.Now())
			}
		},
		Renew: func(ctx context.Context, items []*item) {
			b.mu.Lock()
			hold := b.hold[items[0]]
			b.batches = append(b.batches, batch{at: b.Now(), items: items})
			n := len(b.batches) - 1
			for _, i := range items {
				i.renewed = append(i.renewed, b.Now())
			}
			b.mu.Unlock()
			if hold != nil {
				<-hold
				b.mu.Lock()
				b.batches[n].cause = context.Cause(ctx)
				b.mu.Unlock()
			}
		},
	})
	t.Cleanup(b.Close)
	return b
}

func (b *bench) item(name, shard string, interval time.Duration) *item {
	i := &item{name: name, shard: shard}
	i.Entry = Entry[*item]{Item: i, Interval: interval}
	return i
}

func (b *bench) until(at time.Duration) {
	time.Sleep(at - b.Now()) // on the bubble's clock, as are the others here
	synctest.Wait()
}

func (b *bench) want(i *item, what string, got []time.Duration, want ...time.Duration) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: %s at %v, want %v", i.name, what, got, want)
	}
}

// An end and a renewal are fired once each, when their time has come, and what was
// moved or removed is not fired.
func TestTimesFireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		ends, renews, moved, removed, renewsFirst := b.item("ends", "", 0), b.item("renews", "", 0), b.item("moved", "", 0), b.item("removed", "", 0), b.item("renews, then ends", "", 0)
		b.Set(&ends.Entry, 3*s, Never)
		b.Set(&renews.Entry, Never, 2*s)
		b.Set(&moved.Entry, 2*s, s)
		b.Set(&removed.Entry, 2*s, s)
		b.Set(&renewsFirst.Entry, 4*s, s)
		b.Set(&moved.Entry, 5*s, 4*s)
		b.Remove(&removed.Entry)
		b.Remove(&removed.Entry)
		b.until(time.Minute)
		b.want(ends, "ended", ends.ended, 3*s)
		b.want(ends, "renewed", ends.renewed)
		b.want(renews, "ended", renews.ended)
		b.want(renews, "renewed", renews.renewed, 2*s)
		b.want(moved, "ended", moved.ended, 5*s)
		b.want(moved, "renewed", moved.renewed, 4*s)
		b.want(removed, "ended", removed.ended)
		b.want(removed, "renewed", removed.renewed)
		b.want(renewsFirst, "ended", renewsFirst.ended, 4*s)
		b.want(renewsFirst, "renewed", renewsFirst.renewed, s)
	})
}

// An item that has ended is not renewed, even if both are due in one tick.
func TestEndComesBeforeRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		i := b.item("both", "", 0)
		b.Set(&i.Entry, s, s)
		past := b.item("past", "", 0)
		b.Set(&past.Entry, -s, Never)
		b.until(2 * s)
		b.want(i, "ended", i.ended, s)
		b.want(i, "renewed", i.renewed)
		b.want(past, "ended", past.ended, 0)
	})
}

// Entries of one shard and interval share batches, up to an eighth of the interval
// early; those of other shards do not.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		const interval = 8 * s
		shards := map[string][]*item{}
		for n := range 10 {
			shard := fmt.Sprint(n % 2)
			i := b.item(fmt.Sprint(n), shard, interval)
			shards[shard] = append(shards[shard], i)
			b.Set(&i.Entry, Never, b.Now()+interval)
			b.until(b.Now() + s/10 - 1)
		}
		b.until(time.Minute)
		if len(b.batches) != 2 {
			t.Fatalf("%d batches, want 2: one a shard", len(b.batches))
		}
		for _, got := range b.batches {
			want := shards[got.items[0].shard]
			if got.at != interval || len(got.items) != len(want) {
				t.Errorf("%d items of shard %s at %v, want %d at %v", len(got.items), got.items[0].shard, got.at, len(want), interval)
			}
		}
	})
}

// Another try after a failure, sooner than an eighth of the interval, is fired when it
// is due and not at once.
func TestRetryIsNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		i := b.item("i", "", 80*s)
		time.Sleep(3 * s) // the retry is set in the middle of an interval
		b.Set(&i.Entry, Never, b.Now()+s/2)
		b.until(time.Minute)
		b.want(i, "renewed", i.renewed, 3*s+s/2)
	})
}

// A batch has MaxBatch items at most, and one that hangs delays no other.
func TestBatchesRunBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		hold := make(chan struct{})
		var all []*item
		for n := range 10 {
			i := b.item(fmt.Sprint(n), "", s)
			all = append(all, i)
			b.hold[i] = hold
			b.Set(&i.Entry, Never, s)
		}
		b.until(s)
		if len(b.batches) != 3 {
			t.Fatalf("%d batches under way, want 3 of 10 items", len(b.batches))
		}
		for _, got := range b.batches {
			if len(got.items) > 4 {
				t.Errorf("a batch of %d, want 4 at most", len(got.items))
			}
		}
		b.Close()
		synctest.Wait()
		select {
		case <-b.Done():
			t.Error("Done is closed, want it open: batches are under way")
		default:
		}
		close(hold)
		<-b.Done()
		for _, got := range b.batches {
			if got.cause == nil {
				t.Error("the context of a batch was alive after Close, want it ended")
			}
		}
		_ = all
	})
}

// Nothing is fired after Close, and Set and Remove do nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		i, late := b.item("i", "", 0), b.item("late", "", 0)
		b.Set(&i.Entry, 2*s, s)
		b.Close()
		b.Close()
		<-b.Done()
		b.Set(&late.Entry, 2*s, s)
		b.Remove(&i.Entry)
		b.until(time.Minute)
		for _, i := range []*item{i, late} {
			b.want(i, "ended", i.ended)
			b.want(i, "renewed", i.renewed)
		}
	})
}

// No timer is set while nothing is kept.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		var all []*item
		for n := range 1000 {
			i := b.item(fmt.Sprint(n), "", s)
			b.Set(&i.Entry, time.Hour, time.Minute)
			all = append(all, i)
		}
		for _, i := range all {
			b.Remove(&i.Entry)
		}
		if b.armed != Never || b.timer.Stop() {
			t.Error("the timer is set, want it stopped: nothing is kept")
		}
	})
}

// The clock that a time is told by may be set: a time stays where it is from now.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0)
		time.Sleep(s) // or the Scheduler's clock would show 0
		if got := time.Until(b.Time(3 * s)); got != 2*s {
			t.Errorf("3s on the Scheduler's clock is in %v, want in 2s", got)
		}
	})
}

// The queue is a heap whose elements can be moved and removed: it agrees with a sorted
// list.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q queue[int]
	in := make(map[*Entry[int]]time.Duration)
	var all []*Entry[int]
	for range 200 {
		all = append(all, new(Entry[int]))
	}
	for range 20_000 {
		e := all[r.IntN(len(all))]
		switch at := time.Duration(r.IntN(1000)); {
		case r.IntN(3) == 0:
			q.set(e, Never)
			delete(in, e)
		default:
			q.set(e, at)
			in[e] = at
		}
		first := Never
		for _, at := range in {
			first = min(first, at)
		}
		if q.min() != first || len(q.slots) != len(in) {
			t.Fatalf("%d entries, the first at %d; want %d and %d", len(q.slots), q.min(), len(in), first)
		}
	}
	var got []time.Duration
	for len(q.slots) > 0 {
		got = append(got, in[q.pop()])
	}
	if !slices.IsSortedFunc(got, cmp.Compare) {
		t.Errorf("popped in the order %v, want it sorted", got)
	}
}

func TestEntrySize(t *testing.T) {
	if got := unsafe.Sizeof(Entry[*item]{}); got > 24 {
		t.Errorf("an Entry takes %d bytes, want at most 48: there may be 100,000", got)
	}
}

func BenchmarkSetRemove(b *testing.B) {
	sch := New(Config[int]{Ended: func([]int) {}, Renew: func(context.Context, []int) {}})
	defer sch.Close()
	kept := make([]Entry[int], 10_000)
	for i := range kept {
		sch.Set(&kept[i], time.Hour, Never)
	}
	b.ReportAllocs()
	for b.Loop() {
		var e Entry[int]
		sch.Set(&e, time.Minute, Never)
		sch.Remove(&e)
	}
}
