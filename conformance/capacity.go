package conformance

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// The cases of this group are about keys with permits: [driver.PermitKeeper].
var capacityCases = group("capacity", []Case{
	{Name: "PermitsAreBounded", Rules: []string{"R28"}, Needs: Capabilities{Permits: true}, Test: testPermitsAreBounded,
		Contract: "a semaphore of n permits has callers inside that take n, weights counted, and never more, whatever Lockers they are of"},
	{Name: "PermitsComeBack", Rules: []string{"R28", "R2", "R15"}, Needs: Capabilities{Permits: true}, Test: testPermitsComeBack,
		Contract: "a waiter gets the permit that is given back, and that of a holder whose lease has ended"},
	{Name: "PermitsSurviveFaults", Rules: []string{"R28", "R19"}, Needs: Capabilities{Permits: true, Faults: true}, Isolated: true, Test: testPermitsSurviveFaults,
		Contract: "commands that are lost, or arrive twice, leave the count of permits right"},
	{Name: "PermitsLinearizable", Rules: []string{"R28", "R2"}, Needs: Capabilities{Permits: true}, Test: testPermitsLinearizable,
		Contract: "the answers of attempts for permits, Renew and Unlock fit a count of permits in some order; each token is greater than those of the leases that have ended"},
	{Name: "PermitsLinearizableUnderFaults", Rules: []string{"R28", "R2", "R19"}, Needs: Capabilities{Permits: true, Faults: true}, Isolated: true, Test: testPermitsLinearizableUnderFaults,
		Contract: "with replies lost and commands repeated the answers are still those of such a count"},
	{Name: "ReadersOfProcessesShare", Rules: []string{"R28"}, Needs: Capabilities{Permits: true}, Test: testReadersOfLockersShare,
		Contract: "readers of several Lockers are inside together, and a writer after the last of them"},
	{Name: "WriterIsServed", Rules: []string{"R28"}, Needs: Capabilities{Permits: true}, Test: testWriterIsServed,
		Contract: "a writer gets in though readers of another Locker, who overlap, come all the time"},
	{Name: "PermitsSentTwice", Rules: []string{"R28", "R19"}, Needs: Capabilities{Permits: true, Drivers: true}, Fault: true, Test: testPermitsSentTwice,
		Contract: "an Acquire or Release of permits that arrives again changes nothing"},
	{Name: "PermitsOfTheDead", Rules: []string{"R28", "R2", "R11"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testPermitsOfTheDead,
		Contract: "the permits of a claim that was not renewed are free after its TTL, whatever others renew; it is lost then, and not before"},
	{Name: "WeightsCount", Rules: []string{"R28"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testWeightsCount,
		Contract: "a claim takes as many permits as it asks for, and gives back as many"},
	{Name: "NewestLimitCounts", Rules: []string{"R28"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testNewestLimitCounts,
		Contract: "each Request is judged by its own limit, and its Answer has the limit before if that was another one; permits that are out stay out"},
	{Name: "PermitsAndLocksExclude", Rules: []string{"R28", "R22"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testPermitsAndLocksExclude,
		Contract: "a lock is refused while permits are out, and permits are while the key is locked"},
	{Name: "BigRequestIsServed", Rules: []string{"R28"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testBigRequestIsServed,
		Contract: "while one that asks for many, or a lock, goes on asking, those that came later are refused what it needs; once it is silent they are granted it"},
	{Name: "LockComesBehindABid", Rules: []string{"R28"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testLockComesBehindABid,
		Contract: "a lock is refused a key that is kept free for a request that has waited longer"},
	{Name: "NothingIsKeptForNobody", Rules: []string{"R28", "R16"}, Needs: Capabilities{Permits: true, Drivers: true}, Test: testNothingIsKeptForNobody,
		Contract: "after a Release of the claim of the one that goes on asking for many, which it sends when it gives up, others are granted what was kept free"},
	{Name: "LateEndOfABid", Rules: []string{"R28", "R2"}, Needs: Capabilities{Permits: true, Drivers: true}, Fault: true, Test: testLateEndOfABid,
		Contract: "a Release of a claim that was refused changes nothing where it arrives late, or again, after its Locker was granted what was kept free"},
	{Name: "LateEndSparesOthers", Rules: []string{"R28", "R2", "R16"}, Needs: Capabilities{Permits: true, Drivers: true}, Fault: true, Test: testLateEndSparesOthers,
		Contract: "a Release of a claim that was refused, whose TTL is over, ends no other Locker's bid, and takes no permits from it"},
	{Name: "PermitsHaveTokens", Rules: []string{"R28", "R21"}, Needs: Capabilities{Permits: true, Drivers: true, Fencing: true}, Test: testPermitsHaveTokens,
		Contract: "each claim of permits has a token of its own, greater than that of each claim that ended before"},
})

// semaphore makes the Semaphore of n permits on key, of each Locker.
func (t *T) semaphore(key string, n int, ls ...locker.Locker) (all []*locker.Semaphore) {
	t.Helper()
	for _, l := range ls {
		s, err := locker.NewSemaphore(l, key, n)
		t.NoError(err, "NewSemaphore"+madeByNew)
		all = append(all, s)
	}
	return all
}

func (t *T) permit(s *locker.Semaphore, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	return t.permits(s, 1, opts...)
}

func (t *T) permits(s *locker.Semaphore, n int, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
	defer cancel()
	lease, err := s.AcquireN(ctx, n, opts...)
	return t.Got("AcquireN", lease, err)
}

func testPermitsAreBounded(t *T) {
	const permits, rounds = 3, 4
	var inside atomic.Int64
	sems := t.semaphore(t.Key("k"), permits, t.Lockers(3)...)
	t.Together(2*len(sems), func(i int) {
		for round := range rounds {
			n := 1 + (i+round)%permits
			lease := t.permits(sems[i%len(sems)], n)
			if all := inside.Add(int64(n)); all > permits {
				t.Errorf("callers have %d of %d permits", all, permits)
			}
			time.Sleep(time.Duration(t.IntN(1000)) * time.Microsecond) // the section
			inside.Add(int64(-n))
			t.Unlock(lease)
		}
	})
	t.Eventually(t.Timing().PollWithin, "all permits are free", func() bool { return t.available(sems[0]) == permits })
	all := []*locker.Lease{t.permits(sems[0], 2), t.permits(sems[1], 1)}
	_, err := sems[2].TryAcquire(t.Context())
	t.Is(err, locker.ErrNotAcquired)
	if n := t.available(sems[2]); n != 0 {
		t.Errorf("%d permits are available, and all are out", n)
	}
	for _, lease := range all {
		t.Unlock(lease)
	}
}

func (t *T) available(s *locker.Semaphore) int {
	t.Helper()
	n, err := s.Available(t.Context())
	t.NoError(err, "Available")
	return n
}

func testPermitsSurviveFaults(t *T) {
	const permits = 3
	s := t.semaphore(t.Key("k"), permits, t.Lockers(1)...)[0]
	for name, fault := range map[string]func(Op) error{
		"a reply is lost": t.faults().LoseReply, "a command is lost": t.faults().LoseCommand, "a command arrives twice": t.faults().Repeat,
	} {
		for _, op := range []Op{OpAcquire, OpRelease} {
			t.NoError(fault(op), name)
			// So long that waiting for the end of what the first attempt got fails.
			lease := t.permits(s, 2, locker.WithTTL(time.Hour))
			t.Eventually(t.Timing().PollWithin, fmt.Sprintf("where %s of %s, the first attempt is cleaned up", name, op),
				func() bool { return t.available(s) == permits-2 })
			_ = lease.Unlock(t.Context()) // perhaps in the background
			t.Eventually(t.Timing().PollWithin, fmt.Sprintf("where %s of %s, all permits are free", name, op),
				func() bool { return t.available(s) == permits })
		}
	}
}

func testWriterIsServed(t *T) {
	ls := t.Lockers(2)
	rws := t.rwLock(t.Key("k"), ls...)
	var stop atomic.Bool
	lease := t.reads(rws[0])
	done := t.Begin(1, func(int) {
		for {
			time.Sleep(5 * time.Millisecond) // the section
			next, err := rws[0].TryRLock(t.Context())
			t.Unlock(lease) // the next reader is inside before, if it may
			if stop.Load() {
				_ = next.Unlock(t.Context())
				return
			}
			if lease = next; err != nil {
				lease = t.reads(rws[0])
			}
		}
	})
	ctx, cancel := t.Bounded(t.Context(), t.Timing().PollWithin)
	writer, err := rws[1].Lock(ctx)
	cancel()
	if err == nil {
		t.Unlock(writer)
	}
	stop.Store(true)
	done()
	t.NoError(err, "Lock of a writer")
}

func testPermitsComeBack(t *T) {
	key, ttl := t.Key("k"), t.Timing().ShortTTL
	sems := t.semaphore(key, 2, t.Lockers(2)...)
	waiter := func() *suite.Waiter {
		return t.UntilWaits(t.StartCall(t.Context(), key, func(ctx context.Context) (*locker.Lease, error) { return sems[1].Acquire(ctx) }))
	}
	first := t.permit(sems[0])
	abandoned := t.permit(sems[0], locker.WithTTL(ttl), locker.WithoutRenewal())
	w := waiter()
	second := t.Granted(w, ttl+t.Timing().PollWithin)
	if early := abandoned.Deadline().Sub(w.At.Time); early > 0 {
		t.Errorf("a permit was granted %v before the deadline of its holder", early)
	}
	w = waiter()
	t.Waits(w)
	t.Unlock(first)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
	t.Unlock(second)
}
