package conformance

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// The cases of this group are about what package locker makes of Locks; a driver
// contributes the exclusion, the shared owner, and the loss.
var severalCases = group("several", []Case{
	{Name: "KeysTogetherExclude", Rules: []string{"R1"}, Test: testKeysTogetherExclude,
		Contract: "callers of LockAll with keys in common, in any order, exclude one another and never wait in a circle"},
	{Name: "AllKeysOrNone", Rules: []string{"R1", "R16"}, Test: testAllKeysOrNone,
		Contract: "a LockAll that fails for one key leaves the others free"},
	{Name: "KeysLostTogether", Rules: []string{"R2", "R10"}, Needs: Capabilities{Break: true}, Test: testKeysLostTogether,
		Contract: "the loss of one key of LockAll is the loss of all, and the others are freed by Unlock"},
	{Name: "ReadersShare", Rules: []string{"R5"}, Test: testReadersShare,
		Contract: "readers of one Locker are inside together, and a writer gets in after the last of them"},
	{Name: "ReadersOfLockersShare", Rules: []string{"R8"}, Needs: Capabilities{StoredHolds: true}, Test: testReadersOfLockersShare,
		Contract: "where the store counts holds, readers of several Lockers are inside together, and a writer after the last of them"},
	{Name: "ReadersOfLockersTakeTurns", Rules: []string{"R8"}, Without: Capabilities{StoredHolds: true, Permits: true}, Test: testReadersOfLockersTakeTurns,
		Contract: "where the store neither counts holds nor keeps permits, readers of another Locker wait"},
	{Name: "WritersExclude", Rules: []string{"R1"}, Test: testWritersExclude,
		Contract: "a writer is alone, however many readers and writers of however many Lockers contend"},
	{Name: "WriterIsNotPassedOver", Rules: []string{"R14"}, Locker: true, Test: testWriterIsNotPassedOver,
		Contract: "a reader that comes after a waiting writer waits for it"},
})

func testKeysTogetherExclude(t *T) {
	const rounds, perKey = 6, 3
	keys := []string{t.Key("a"), t.Key("b"), t.Key("c"), t.Key("d"), t.Key("e")}
	counters, want := make([]atomic.Int64, len(keys)), make([]atomic.Int64, len(keys))
	ls := t.Lockers(3)
	t.Together(2*len(ls), func(i int) {
		for range rounds {
			var mine []int
			var names []string
			for range perKey {
				k := t.IntN(len(keys))
				mine, names = append(mine, k), append(names, keys[k]) // perhaps twice
			}
			all := t.lockAll(ls[i%len(ls)], names)
			seen := map[int]int64{}
			for _, k := range mine {
				seen[k] = counters[k].Load()
			}
			time.Sleep(time.Duration(t.IntN(500)) * time.Microsecond) // room for another caller
			for k, n := range seen {
				counters[k].Store(n + 1)
				want[k].Add(1)
			}
			t.NoError(all.Unlock(t.Context()), "Unlock")
		}
	})
	for k := range keys {
		if got, want := counters[k].Load(), want[k].Load(); got != want {
			t.Errorf("counter %d is %d after %d increments", k, got, want)
		}
	}
}

func (t *T) lockAll(l locker.Locker, keys []string, opts ...locker.LockOption) *locker.Leases {
	t.Helper()
	ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
	defer cancel()
	all, err := locker.LockAll(ctx, l, keys, opts...)
	if err != nil {
		t.Fatalf("LockAll failed: %v", err)
	}
	return all
}

func testAllKeysOrNone(t *T) {
	l, other := t.Locker(), t.Locker()
	a, b, c := t.Key("a"), t.Key("b"), t.Key("c")
	lease := t.Lock(other, b)
	for _, wait := range []time.Duration{0, t.Timing().ShortTTL} {
		_, err := locker.LockAll(t.Context(), l, []string{c, a, b}, locker.WithWait(wait))
		t.Is(err, locker.ErrNotAcquired)
		t.FreeWithin(t.Timing().PollWithin, other, a)
		t.FreeWithin(t.Timing().PollWithin, other, c)
	}
	t.Unlock(lease)
	all := t.lockAll(l, []string{c, a, b})
	for _, key := range all.Keys() {
		t.Taken(other, key)
	}
	t.NoError(all.Unlock(t.Context()), "Unlock")
	for _, key := range []string{a, b, c} {
		t.Free(other, key)
	}
}

func testKeysLostTogether(t *T) {
	l, other := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker()
	a, b, c := t.Key("a"), t.Key("b"), t.Key("c")
	all := t.lockAll(l, []string{a, b, c}, locker.WithTTL(time.Hour))
	ctx := all.Context(t.Context())
	t.Open(all.Lost(), "Lost of all")
	t.NoError(t.breaker().Break(t.Context(), b), "breaking one of the keys")
	t.Ends(all.Lost(), t.Timing().RenewEvery+t.Timing().Slack, "the loss of one is noticed")
	t.Ends(ctx.Done(), t.Timing().Slack, "the context of all ends")
	t.Is(all.Err(), locker.ErrLost)
	t.Taken(other, a)
	t.Is(all.Unlock(t.Context()), locker.ErrLost)
	for _, key := range []string{a, b, c} {
		t.Free(other, key)
	}
}

// madeByNew states what readers, writers and permits require of a Locker.
const madeByNew = ": this group needs Lockers that locker.New has made; of others name its cases in WithSkip"

// rwLock returns the lock of readers and writers on key, of each Locker.
func (t *T) rwLock(key string, ls ...locker.Locker) (all []*locker.RWLock) {
	t.Helper()
	for _, l := range ls {
		rw, err := locker.NewRWLock(l, key)
		t.NoError(err, "NewRWLock"+madeByNew)
		all = append(all, rw)
	}
	return all
}

func (t *T) reads(rw *locker.RWLock) *locker.Lease {
	t.Helper()
	ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
	defer cancel()
	lease, err := rw.RLock(ctx)
	return t.Got("RLock", lease, err)
}

func (t *T) writes(rw *locker.RWLock) *locker.Lease {
	t.Helper()
	ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
	defer cancel()
	lease, err := rw.Lock(ctx)
	return t.Got("Lock", lease, err)
}

// writer returns a writer that waits at the lock itself.
func (t *T) writer(rw *locker.RWLock, key string) *suite.Waiter {
	t.Helper()
	return t.UntilWaits(t.StartCall(t.Context(), key, func(ctx context.Context) (*locker.Lease, error) { return rw.Lock(ctx) }))
}

func testReadersShare(t *T) {
	ls, other, key := t.Lockers(2), t.Locker(), t.Key("k")
	rws := t.rwLock(key, ls...)
	readers := []*locker.Lease{t.reads(rws[0]), t.reads(rws[0]), t.reads(rws[0])}
	w := t.writer(rws[1], key)
	for _, r := range readers {
		t.Waits(w)
		t.Taken(other, key)
		t.NoError(r.Renew(t.Context()), "Renew by a reader")
		t.Unlock(r)
	}
	lease := t.Granted(w, t.Timing().PollWithin)
	for _, rw := range rws {
		_, err := rw.RLock(t.Context(), locker.WithWait(0))
		t.Is(err, locker.ErrNotAcquired)
	}
	t.Unlock(lease)
	t.Unlock(t.reads(rws[0]))
	t.Unlock(t.reads(rws[1]))
}

func testReadersOfLockersShare(t *T) {
	ls, other, key := t.Lockers(3), t.Locker(), t.Key("k")
	rws := t.rwLock(key, ls...)
	for _, firstEndsFirst := range []bool{true, false} {
		first, second := t.reads(rws[0]), t.reads(rws[1])
		w := t.writer(rws[2], key)
		if !firstEndsFirst {
			first, second = second, first
		}
		t.Unlock(first)
		t.Waits(w)
		t.Taken(other, key)
		t.NoError(second.Renew(t.Context()), "Renew by the reader that is left")
		t.Unlock(second)
		lease := t.Granted(w, t.Timing().PollWithin)
		t.newer(lease.Token(), first.Token())
		t.Unlock(lease)
	}
}

func testReadersOfLockersTakeTurns(t *T) {
	ls, key := t.Lockers(2), t.Key("k")
	rws := t.rwLock(key, ls...)
	lease := t.reads(rws[0])
	_, err := rws[1].RLock(t.Context(), locker.WithWait(0))
	t.Is(err, locker.ErrNotAcquired)
	w := t.UntilWaits(t.StartCall(t.Context(), key, func(ctx context.Context) (*locker.Lease, error) { return rws[1].RLock(ctx) }))
	t.Waits(w)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testWritersExclude(t *T) {
	const rounds = 4
	var writers, readers atomic.Int32
	rws := t.rwLock(t.Key("k"), t.Lockers(3)...)
	check := func(inside *atomic.Int32, most int32) {
		inside.Add(1)
		time.Sleep(time.Duration(t.IntN(1000)) * time.Microsecond) // the section
		if w, r := writers.Load(), readers.Load(); w > most || w > 0 && r > 0 {
			t.Errorf("%d writers and %d readers are inside at once", w, r)
		}
		inside.Add(-1)
	}
	t.Together(4*len(rws), func(i int) {
		rw := rws[i%len(rws)]
		for range rounds {
			if i < len(rws) {
				lease := t.writes(rw)
				check(&writers, 1)
				t.Unlock(lease)
				continue
			}
			lease := t.reads(rw)
			check(&readers, 0)
			t.Unlock(lease)
		}
	})
	reader := t.reads(rws[0])
	t.refusesWriters(rws)
	t.Unlock(reader)
	writer := t.writes(rws[0])
	t.refusesWriters(rws)
	for _, rw := range rws {
		_, err := rw.RLock(t.Context(), locker.WithWait(0))
		t.Is(err, locker.ErrNotAcquired)
	}
	t.Unlock(writer)
}

func (t *T) refusesWriters(rws []*locker.RWLock) {
	t.Helper()
	for _, rw := range rws {
		_, err := rw.Lock(t.Context(), locker.WithWait(0))
		t.Is(err, locker.ErrNotAcquired)
	}
}

func testWriterIsNotPassedOver(t *T) {
	l, key := t.Locker(), t.Key("k")
	rw := t.rwLock(key, l)[0]
	first := t.reads(rw)
	w := t.writer(rw, key)
	gate := key + ":gate"
	if t.caps().Permits {
		gate = key
	}
	second := t.UntilWaits(t.StartCall(t.Context(), gate, func(ctx context.Context) (*locker.Lease, error) { return rw.RLock(ctx) }))
	t.Waits(second)
	t.Unlock(first)
	lease := t.Granted(w, t.Timing().PollWithin)
	t.Open(second.Done(), "the reader behind the writer returns")
	t.Unlock(lease)
	t.Unlock(t.Granted(second, t.Timing().PollWithin))
}
