package locker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// slowFake renews one batch after the other, in the order in which they come, and takes its time for each claim.
type slowFake struct {
	*fake
	server chan struct{} // is full while a batch is renewed
	each   time.Duration // for a claim
}

func (s *slowFake) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	select {
	case s.server <- struct{}{}:
		defer func() { <-s.server }()
	case <-ctx.Done():
	}
	bound.Sleep(ctx, nil, time.Duration(len(claims))*s.each)
	for i, c := range claims {
		if ctx.Err() != nil {
			answer(i, ctx.Err())
			continue
		}
		s.t.Mu.Lock()
		err := s.t.Renew(c)
		s.t.Mu.Unlock()
		answer(i, err)
	}
}

// holdSlowly holds so many locks at a slowFake until the test ends.
func holdSlowly(t *testing.T, locks int, ttl, each time.Duration) (leases []*Lease) {
	t.Helper()
	l, err := New(&slowFake{newFake(), make(chan struct{}, 1), each}, WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for i := range locks {
		lease, err := l.Lock(t.Context(), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	return leases
}

// A store that needs half of the TTL to renew all, more than the interval between renewals, loses no
// lease. (When each batch was sent at once, most waited until their timeout, and came again in the way of the rest.)
func TestSlowStoreLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks, ttl = 30_000, 30 * time.Second
		leases := holdSlowly(t, locks, ttl, ttl/2/locks)
		time.Sleep(5 * ttl) // on the bubble's clock
		lost := 0
		for _, lease := range leases {
			if lease.Err() != nil {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d leases are lost, want none", lost, locks)
		}
	})
}

// A lease whose renewal waits behind others is at risk as if it had failed.
func TestWaitingRenewalIsAtRisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks, ttl = renewCalls*renewBatchSize + 10, 30 * time.Second
		leases := holdSlowly(t, locks, ttl, time.Minute)
		for _, lease := range leases {
			lease.AtRisk() // from now on the lease watches
		}
		time.Sleep(2*ttl/3 - time.Millisecond) // on the bubble's clock
		synctest.Wait()
		for i, lease := range leases {
			if lease.Err() != nil || !closed(lease.AtRisk()) {
				t.Fatalf("lease %d: Err %v, AtRisk closed %v; want it at risk a third of the TTL before its end", i, lease.Err(), closed(lease.AtRisk()))
			}
		}
	})
}

// The claims that end first are next, in batches. No more callers make calls of Renew than renewCalls.
func TestBacklog(t *testing.T) {
	var b backlogs
	callers := 0
	var ends []time.Duration
	for range 2 * renewCalls {
		var due []dueClaim
		for range renewBatchSize {
			end := time.Duration(rand.IntN(1000))
			ends = append(ends, end)
			due = append(due, dueClaim{end, &claim{deadline: end}})
		}
		if b.add("shard", due) {
			callers++
		}
	}
	if callers != renewCalls {
		t.Errorf("%d make calls, want %d", callers, renewCalls)
	}
	slices.Sort(ends)
	var got []time.Duration
	for callers > 0 {
		batch := b.next("shard", nil)
		if len(batch) > renewBatchSize {
			t.Errorf("a batch of %d, want %d at most", len(batch), renewBatchSize)
		}
		if len(batch) == 0 {
			callers--
		}
		for _, c := range batch {
			got = append(got, c.deadline)
		}
	}
	if slices.Compare(got, ends) != 0 {
		t.Error("the claims come in another order than they end in")
	}
	if b.add("none", nil); len(b.byShard) != 0 {
		t.Errorf("%d backlogs are kept, want none", len(b.byShard))
	}
}
