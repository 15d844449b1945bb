package conformance

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var exclusionCases = group("exclusion", []Case{
	{Name: "AcquireRelease", Rules: []string{"R1"}, Test: testAcquireRelease,
		Contract: "a free key is granted to one Locker, refused to another, and free again after Unlock"},
	{Name: "SameLockerExcludes", Rules: []string{"R1", "R6"}, Test: testSameLockerExcludes,
		Contract: "two callers of one Locker exclude each other like two processes"},
	{Name: "RefusedTryHasNoEffect", Rules: []string{"R1", "R2"}, Test: testRefusedTryHasNoEffect,
		Contract: "failed tries leave the holder its lease"},
	{Name: "FreeWhenUnlockReturns", Rules: []string{"R1"}, Test: testFreeWhenUnlockReturns,
		Contract: "when Unlock has returned nil, another Locker's try succeeds"},
	{Name: "RapidCycles", Rules: []string{"R1", "R4"}, Test: testRapidCycles,
		Contract: "a key can be locked and unlocked over and over without a pause"},
	{Name: "CounterExact", Rules: []string{"R1"}, Test: testCounterExact,
		Contract: "a counter read and written back under the lock by several Lockers loses no increment"},
	{Name: "NeverTwoInside", Rules: []string{"R1"}, Test: testNeverTwoInside,
		Contract: "there are never two callers inside, however many of however many Lockers contend"},
	{Name: "IntervalsDisjoint", Rules: []string{"R1", "R9"}, Test: testIntervalsDisjoint,
		Contract: "the intervals from grant to Unlock, or to Deadline if there is no Unlock, never overlap"},
	{Name: "MixedLockAndTryLock", Rules: []string{"R1", "R14"}, Test: testMixedLockAndTryLock,
		Contract: "callers that wait, callers that do not, and callers with a bound exclude one another and all come to an end"},
	{Name: "EverybodyGetsATurn", Rules: []string{"R1", "R15"}, Test: testEverybodyGetsATurn,
		Contract: "every contender that waits long enough gets the lock"},
	{Name: "DoExcludes", Rules: []string{"R1"}, Locker: true, Test: testDoExcludes,
		Contract: "functions run by Do under one key run one at a time"},
	{Name: "Linearizable", Rules: []string{"R1", "R2", "R21"}, Test: testLinearizable,
		Contract: "what TryLock, Renew and Unlock answered is what a mutex with an owner and a growing token would have answered in some order"},
	{Name: "GrantHasAMajority", Rules: []string{"R1"}, Needs: Capabilities{Quorum: true}, Test: testGrantHasAMajority,
		Contract: "where a quorum decides, a new lease is on a majority of the servers, of which there are three at least"},
	{Name: "LateGrantIsRefused", Rules: []string{"R1", "R9"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLateGrantIsRefused,
		Contract: "a grant whose reply arrives after the lease's end is not handed to the caller"},
})

func testAcquireRelease(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.TryLock(a, key)
	t.Taken(b, key)
	t.Unlock(lease)
	t.Free(b, key)
	t.Free(a, key)
}

func testSameLockerExcludes(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	t.Taken(l, key)
	w := t.Wait(l, key)
	t.Open(w.Done(), "a second caller's Lock returns")
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testRefusedTryHasNoEffect(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	for range 20 {
		t.Taken(b, key)
		t.Taken(a, key)
	}
	t.NoError(lease.Renew(t.Context()), "Renew by the holder")
	t.Open(lease.Lost(), "the holder's Lost")
	t.Taken(b, key)
	t.Unlock(lease)
	t.Free(b, key)
}

func testFreeWhenUnlockReturns(t *T) {
	ls, key := t.Lockers(2), t.Key("k")
	lease := t.TryLock(ls[0], key)
	for i := range 50 {
		t.Unlock(lease)
		lease = t.TryLock(ls[(i+1)%2], key)
	}
	t.Unlock(lease)
}

func testRapidCycles(t *T) {
	l, key := t.Locker(), t.Key("k")
	for range 200 {
		t.Unlock(t.TryLock(l, key))
	}
}

// contend runs section under the lock rounds times in each of perLocker
// goroutines of each Locker.
func (t *T) contend(ls []locker.Locker, perLocker, rounds int, lock func(l locker.Locker) *locker.Lease, section func(lease *locker.Lease)) {
	t.Helper()
	t.Together(len(ls)*perLocker, func(i int) {
		for range rounds {
			lease := lock(ls[i%len(ls)])
			section(lease)
			t.Unlock(lease)
		}
	})
}

func testCounterExact(t *T) {
	const lockers, perLocker, rounds = 4, 2, 8
	ls := t.Lockers(lockers)
	keys := []string{t.Key("a"), t.Key("b")}
	counters := make([]atomic.Int64, len(keys))
	t.Together(len(keys), func(i int) {
		t.contend(ls, perLocker, rounds, func(l locker.Locker) *locker.Lease { return t.Lock(l, keys[i]) }, func(*locker.Lease) {
			// Not Add: an increment is lost if somebody else is inside.
			n := counters[i].Load()
			time.Sleep(time.Duration(t.IntN(500)) * time.Microsecond) // room for somebody else
			counters[i].Store(n + 1)
		})
	})
	for i := range keys {
		if got, want := counters[i].Load(), int64(lockers*perLocker*rounds); got != want {
			t.Errorf("counter %d is %d after %d increments", i, got, want)
		}
	}
}

// inside notices when two are in a section at once.
type inside struct{ n atomic.Int32 }

func (in *inside) enter(t *T) {
	t.Helper()
	if n := in.n.Add(1); n != 1 {
		t.Errorf("%d callers are inside at once", n)
	}
}

func (in *inside) leave() { in.n.Add(-1) }

func testNeverTwoInside(t *T) {
	ls, key := t.Lockers(4), t.Key("k")
	var in inside
	t.contend(ls, 5, 4, func(l locker.Locker) *locker.Lease { return t.Lock(l, key) }, func(*locker.Lease) {
		in.enter(t)
		time.Sleep(time.Duration(t.IntN(1000)) * time.Microsecond) // the section
		in.leave()
	})
}

func testIntervalsDisjoint(t *T) {
	type interval struct{ from, to time.Time }
	var mu sync.Mutex
	var all []interval
	key := t.Key("k")
	ls := t.Lockers(4)
	t.Together(len(ls), func(i int) {
		for range 6 {
			abandon := t.IntN(4) == 0
			var opts []locker.LockOption
			if abandon {
				opts = []locker.LockOption{locker.WithTTL(t.Timing().MinTTL), locker.WithoutRenewal()}
			}
			lease := t.Lock(ls[i], key, opts...)
			iv := interval{from: time.Now(), to: lease.Deadline()}
			if !abandon {
				iv.to = time.Now()
				t.Unlock(lease)
			}
			if iv.to.Before(iv.from) {
				continue // this goroutine ran so late that the lease was over: it was inside at no time
			}
			mu.Lock()
			all = append(all, iv)
			mu.Unlock()
		}
	})
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from.Sub(b.from), 0) })
	for i := range len(all) - 1 {
		if overlap := all[i].to.Sub(all[i+1].from); overlap > 0 {
			t.Errorf("grant %d lasted until %v after the next one began", i, overlap)
		}
	}
}

func testMixedLockAndTryLock(t *T) {
	ls, key := t.Lockers(3), t.Key("k")
	var in inside
	var granted atomic.Int32
	ways := []func(l locker.Locker) (*locker.Lease, error){
		func(l locker.Locker) (*locker.Lease, error) { return l.Lock(t.Context(), key) },
		func(l locker.Locker) (*locker.Lease, error) { return l.TryLock(t.Context(), key) },
		func(l locker.Locker) (*locker.Lease, error) {
			return l.Lock(t.Context(), key, locker.WithWait(20*time.Millisecond))
		},
	}
	t.Together(len(ways)*len(ls), func(i int) {
		for range 8 {
			lease, err := ways[i/len(ls)](ls[i%len(ls)])
			if err != nil {
				// Or ErrUnavailable, if the store took too long to answer.
				t.Isnt(err, locker.ErrInvalid, locker.ErrLost, locker.ErrClosed)
				continue
			}
			granted.Add(1)
			in.enter(t)
			time.Sleep(time.Millisecond) // the section
			in.leave()
			t.Unlock(lease)
		}
	})
	if got := granted.Load(); got < 8*3 {
		t.Errorf("%d grants, and those that waited without a bound alone were %d", got, 8*3)
	}
	t.Free(ls[0], key)
}

func testEverybodyGetsATurn(t *T) {
	ls, key := t.Lockers(4), t.Key("k")
	var waiters []*suite.Waiter
	first := t.Lock(ls[0], key)
	for i := range 12 {
		waiters = append(waiters, t.Wait(ls[i%len(ls)], key))
	}
	t.Unlock(first)
	// Each waiter unlocks for the next one; the order is not the subject.
	for len(waiters) > 0 {
		var w *suite.Waiter
		t.Eventually(t.Timing().PollWithin, "one of the waiters is granted the key", func() bool {
			i := slices.IndexFunc(waiters, func(w *suite.Waiter) bool {
				select {
				case <-w.Done():
					return true
				default:
					return false
				}
			})
			if i < 0 {
				return false
			}
			w = waiters[i]
			waiters = slices.Delete(waiters, i, i+1)
			return true
		})
		t.Unlock(t.Granted(w, t.Timing().Slack))
	}
}

func testDoExcludes(t *T) {
	ls, key := t.Lockers(12), t.Key("k") // several in one Locker may pass the lock on
	var in inside
	var ran atomic.Int32
	t.Together(len(ls), func(i int) {
		t.NoError(locker.Do(t.Context(), ls[i], key, func(context.Context) error {
			in.enter(t)
			defer in.leave()
			time.Sleep(time.Millisecond) // the section
			ran.Add(1)
			return nil
		}), "Do")
	})
	if got := ran.Load(); got != 12 {
		t.Errorf("%d of 12 functions ran", got)
	}
}

func testLateGrantIsRefused(t *T) {
	ttl := t.Timing().ShortTTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	t.NoError(t.faults().DelayReply(OpAcquire, ttl+ttl/2), "delaying a reply")
	lease, err := a.TryLock(t.Context(), key, locker.WithTTL(ttl))
	if err == nil {
		t.Errorf("a grant that was over when its reply arrived was handed out, with the deadline %v ago", time.Since(lease.Deadline()))
		_ = lease.Unlock(t.Context())
	} else {
		t.Isnt(err, locker.ErrInvalid, locker.ErrClosed)
	}
	t.FreeWithin(ttl+t.Timing().PollWithin, b, key)
}

func testGrantHasAMajority(t *T) {
	l, key := t.Locker(), t.Key("k")
	for range 5 {
		lease := t.Lock(l, key)
		if have, of := lease.Nodes(); of < 3 || have < of/2+1 {
			t.Errorf("Quorum is claimed, and Nodes of a new lease are %d of %d: want a driver.NodeCounter that has three servers or more, and a grant on a majority", have, of)
		}
		t.Unlock(lease)
	}
}
