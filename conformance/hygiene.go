package conformance

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var hygieneCases = group("hygiene", []Case{
	{Name: "GoroutinesEndWithLocks", Rules: []string{"R24"}, Serial: true, Test: testGoroutinesEndWithLocks,
		Contract: "two seconds after the last release no goroutine of that lock remains"},
	{Name: "GoroutinesEndWithClose", Rules: []string{"R24"}, Serial: true, Test: testGoroutinesEndWithClose,
		Contract: "after Close no goroutine of the Locker remains"},
	{Name: "KeysEndWithLocks", Rules: []string{"R24"}, Needs: Capabilities{Inspect: true}, Isolated: true, Test: testKeysEndWithLocks,
		Contract: "after the last release the store keeps at most the fencing key of each lock, which expires, and for some seconds signals"},
	{Name: "SignalsDoNotPileUp", Rules: []string{"R24"}, Needs: Capabilities{Inspect: true}, Isolated: true, Test: testSignalsDoNotPileUp,
		Contract: "however often a key is handed over, the number of keys in the store stays small"},
	{Name: "CancelledWaiterLeavesNothing", Rules: []string{"R16", "R24"}, Needs: Capabilities{Inspect: true}, Isolated: true, Test: testCancelledWaiterLeavesNothing,
		Contract: "a waiter that gave up leaves nothing in the store beside what the holder keeps there"},
	{Name: "LocalStateIsBounded", Rules: []string{"R24"}, Serial: true, Test: testLocalStateIsBounded,
		Contract: "thousands of keys used one after another leave nothing in memory"},
})

// goroutines counts the running ones by what they were started as, leaving out
// the test framework's and the harness's.
func (t *T) goroutines() map[string]int {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	b, ok := upgrade[interface{ Background(stack string) bool }](t.h)
	counts := map[string]int{}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		_, by, found := strings.Cut(stack, "\ncreated by ")
		if !found || strings.HasPrefix(by, "testing.") || ok && b.Background(stack) {
			continue
		}
		// The line is as of the go statement; the rest differs from one
		// goroutine to another.
		by, _, _ = strings.Cut(strings.Replace(by, " in goroutine", "\n", 1), "\n")
		counts[by]++
	}
	return counts
}

// goroutinesSettle waits until there are no more of any kind than before.
func (t *T) goroutinesSettle(before map[string]int) {
	t.Helper()
	var more []string
	defer func() {
		if len(more) > 0 {
			t.Logf("goroutines that were not there before: %v", more)
		}
	}()
	t.Eventually(t.Timing().Settle, "goroutines end", func() bool {
		more = nil
		for by, n := range t.goroutines() {
			if n > before[by] {
				more = append(more, fmt.Sprintf("%d by %s", n-before[by], by))
			}
		}
		return len(more) == 0
	})
}

// exercise uses the Lockers in every way, and gives everything back.
func (t *T) exercise(ls []locker.Locker, round string) {
	t.Helper()
	t.Together(len(ls), func(i int) {
		l, shared := ls[i], t.Key("shared "+round)
		for range 3 {
			t.Unlock(t.Lock(l, shared))
		}
		own := t.Key(fmt.Sprintf("own %s %d", round, i))
		lease := t.Lock(l, own)
		ctx := lease.Context(t.Context())
		inner := t.LockUnder(ctx, l, own)
		t.Taken(l, own)
		waiters := []*suite.Waiter{t.Wait(l, own), t.Wait(l, own)}
		for _, w := range waiters {
			w.Cancel()
			_ = t.Refused(w, t.Timing().Slack)
		}
		t.NoError(lease.Renew(t.Context()), "Renew")
		t.Unlock(inner)
		t.Unlock(lease)
	})
}

func testGoroutinesEndWithLocks(t *T) {
	ls := t.Lockers(3)
	// Things started once, such as connections, are no leak. Things that end with
	// the locks have two seconds to do so.
	t.exercise(ls, "warm-up")
	t.Sleep(2 * time.Second)
	before := t.goroutines()
	for round := range 5 {
		t.exercise(ls, strconv.Itoa(round))
	}
	t.goroutinesSettle(before)
}

func testGoroutinesEndWithClose(t *T) {
	before := t.goroutines()
	ls := t.Lockers(3)
	t.exercise(ls, "")
	// With a lease held and a wait under way.
	t.Lock(ls[0], t.Key("held"))
	w := t.Wait(ls[1], t.Key("held"))
	for _, l := range ls {
		t.NoError(l.Close(), "Close")
	}
	t.Is(t.Refused(w, t.Timing().Slack), locker.ErrClosed)
	t.goroutinesSettle(before)
}

func testKeysEndWithLocks(t *T) {
	ls := t.Lockers(3)
	before := t.storedKeys()
	locks := 0
	for round := range 2 {
		t.exercise(ls, strconv.Itoa(round))
		locks += 1 + len(ls)
	}
	// A subscription or a session may end a moment after its lock.
	var endless []StoredKey
	defer func() {
		for _, k := range endless {
			t.Logf("%q is kept for ever: the harness's Keys says %v is left of it", k.Name, k.TTL)
		}
	}()
	t.Eventually(t.Timing().Settle, "nothing is left in the store that never expires", func() bool {
		endless = slices.DeleteFunc(t.newKeys(before), func(k StoredKey) bool { return k.TTL > 0 })
		return len(endless) == 0
	})
	if !t.caps().Fencing {
		locks = 0
	}
	t.leftWithin(t.Timing().SignalLife, locks, before)
}

func testSignalsDoNotPileUp(t *T) {
	// The lock, its fencing key, a queue, and something for each Locker.
	const rounds, allowed = 30, 8
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	before := t.storedKeys()
	for range rounds {
		lease := t.Lock(a, key)
		w := t.Wait(b, key)
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
		t.Unlock(t.Lock(a, key))
	}
	if keys := t.newKeys(before); len(keys) > allowed {
		t.Errorf("after %d rounds the store has %d keys: %v", rounds, len(keys), keys)
	}
}

func testCancelledWaiterLeavesNothing(t *T) {
	holder, waiter, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	before := t.storedKeys()
	for range 3 {
		w := t.Wait(waiter, key)
		w.Cancel()
		_ = t.Refused(w, t.Timing().Prompt)
	}
	t.leftWithin(t.Timing().Settle, 0, before)
	t.Unlock(lease)
}

func testLocalStateIsBounded(t *T) {
	const warmUp, n, workers = 500, 2000, 8
	// Long keys and long ids of claims, so that keeping either shows.
	l := t.Locker(locker.WithoutFencing(), locker.WithMetadata("host", "-", "pid", "-", "pad", strings.Repeat(".", 450)))
	use := func(from, to int) {
		t.Together(workers, func(w int) {
			for i := from + w; i < to; i += workers {
				t.Unlock(t.Lock(l, t.Key(strconv.Itoa(i)+strings.Repeat(".", 1000))))
			}
		})
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers and pools held on to
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	use(0, warmUp)
	// A key that is kept takes six times as much, and an id three times, in each round. Things that are made once are
	// no leak: the connections of 8 workers take 2.6 MB with their buffers. On a busy machine they are made in several
	// rounds, in nine at most where each grows by what is allowed.
	const rounds, allowed = 10, n * 150
	var grown int64
	defer func() { t.Logf("the heap grew by %d bytes over %d keys; %d are allowed", grown, n, allowed) }()
	for round := range rounds {
		before := heap()
		use(warmUp+round*n, warmUp+(round+1)*n)
		if grown = heap() - before; grown < allowed {
			break
		}
		if round == rounds-1 {
			t.Eventually(t.Timing().Settle, "memory is given back", func() bool {
				grown = heap() - before
				return grown < allowed
			})
		}
	}
}
