package redisconformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/redistest"
)

const failoverGroup = "failover"

// The lease of cases in which a failover must not cost it: several times what one
// takes, the vote of the Sentinels included.
const failoverTTL = 10 * time.Second

var failoverCases = []conformance.Case{
	{Name: "OrderlyFailover", Group: failoverGroup, Rules: []string{"R1", "R11", "R15", "R21"}, Isolated: true, Fault: true, Test: testOrderlyFailover,
		Contract: "in an orderly failover a holder keeps its lock on the new master, and a waiter gets it after the release"},
	{Name: "MasterDies", Group: failoverGroup, Rules: []string{"R11", "R15", "R17", "R21"}, Isolated: true, Fault: true, Test: testMasterDies,
		Contract: "when the master dies and its replica takes over, a holder keeps a lock the replica has, waiters carry on, and calls that begin meanwhile are tried until they succeed"},
	{Name: "LockDiesWithMaster", Group: failoverGroup, Rules: []string{"R2", "R10", "R15", "R21"}, Isolated: true, Fault: true, Test: testLockDiesWithMaster,
		Contract: "the holder of a lock that the new master does not know learns of the loss in time, and the next holder has a greater token"},
	{Name: "HoldsDieWithMaster", Group: failoverGroup, Rules: []string{"R8", "R11", "R15", "R19"}, Needs: conformance.Capabilities{StoredHolds: true}, Isolated: true, Fault: true, Test: testHoldsDieWithMaster,
		Contract: "when the new master knows of fewer holds than there are, each of them still excludes others, and the last Unlock frees the key"},
	{Name: "UnlockDiesWithMaster", Group: failoverGroup, Rules: []string{"R8", "R11", "R15", "R19"}, Needs: conformance.Capabilities{StoredHolds: true}, Isolated: true, Fault: true, Test: testUnlockDiesWithMaster,
		Contract: "when the new master knows of more holds than there are, the last Unlock frees the key"},
}

// onMaster does something to the shard of key: cluster on a cluster, sentinel under Sentinels.
func (d *deployment) onMaster(tb testing.TB, key string, cluster func(*redistest.Cluster, testing.TB, int), sentinel func(*redistest.Sentinel, testing.TB)) {
	tb.Helper()
	if d.cluster != nil {
		cluster(d.cluster, tb, d.cluster.ShardOf(tb, key))
		return
	}
	sentinel(d.sentinel, tb)
}

// failover promotes a replica of the master of key, losing nothing.
func (d *deployment) failover(tb testing.TB, key string) {
	tb.Helper()
	d.onMaster(tb, key, (*redistest.Cluster).Failover, (*redistest.Sentinel).Failover)
}

// killMaster kills the master of key and has a replica promoted.
func (d *deployment) killMaster(tb testing.TB, key string) {
	tb.Helper()
	if d.cluster != nil {
		d.cluster.KillMaster(tb, d.cluster.ShardOf(tb, key))
		return
	}
	d.sentinel.KillMaster(tb)
}

func (d *deployment) stopReplication(tb testing.TB, key string) {
	tb.Helper()
	d.onMaster(tb, key, (*redistest.Cluster).StopReplication, (*redistest.Sentinel).StopReplication)
}

// sync waits until the replicas of key's master have what it has.
func (d *deployment) sync(tb testing.TB, key string) {
	tb.Helper()
	d.onMaster(tb, key, (*redistest.Cluster).Sync, (*redistest.Sentinel).Sync)
}

// newer checks that tokens grow.
func newer(t *conformance.T, later, earlier *locker.Lease) {
	t.Helper()
	if later.Token() <= earlier.Token() {
		t.Errorf("token %d after %d", later.Token(), earlier.Token())
	}
}

// passOn releases lease, has w get the lock, and checks that it works like any
// other from then on.
func passOn(t *conformance.T, lease *locker.Lease, w *suite.Waiter, others ...locker.Locker) {
	t.Helper()
	t.Open(lease.Lost(), "Lost")
	select {
	case <-w.Done():
		t.Fatalf("a waiter's Lock returns on a held key, with error: %v", w.Err)
	default:
	}
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().PollWithin)
	newer(t, next, lease)
	for _, l := range others {
		t.Taken(l, lease.Key())
	}
	t.Unlock(next)
	for _, l := range others {
		t.FreeWithin(t.Timing().PollWithin, l, lease.Key())
	}
}

func testOrderlyFailover(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	ttl := t.Timing().TTL + t.Timing().TTL/2
	a, b := t.Locker(locker.WithTTL(ttl)), t.Locker(locker.WithTTL(ttl))
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	h.sync(t, key)
	h.failover(t, key)
	// Where a client that starts now looks, the lock must live as long as its
	// holder believes: time passing is the subject.
	stranger := t.Locker()
	for until := time.Now().Add(ttl + ttl/4); time.Now().Before(until); {
		t.Taken(stranger, key)
		t.Sleep(ttl / 10)
	}
	t.RenewedWithin(ttl/2, lease)
	passOn(t, lease, w, stranger)
}

func testMasterDies(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("{k}")
	a, b := t.Locker(locker.WithTTL(failoverTTL)), t.Locker(locker.WithTTL(failoverTTL))
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	h.sync(t, key)

	// Locks of another key of the same master, all the time.
	over := make(chan struct{})
	var failed error
	busy := t.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			err := locker.Do(t.Context(), b, t.Key("{k}other"), func(context.Context) error { return nil })
			if err != nil {
				failed = fmt.Errorf("after %d: %w", i, err)
				return
			}
			time.Sleep(t.Timing().RenewEvery / 10) // all the time, but not all of the processor
		}
	})
	h.killMaster(t, key)
	t.RenewedWithin(failoverTTL/2, lease)
	t.FreeWithin(failoverTTL/2, a, t.Key("{k}new"))
	close(over)
	t.Ends(busy, t.Timing().Patience, "a caller comes through the failover")
	// A lock may be lost with its master, and the holder learns of the loss.
	if failed != nil {
		t.Is(failed, locker.ErrLost)
	}
	passOn(t, lease, w, t.Locker())
}

func testLockDiesWithMaster(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	ttl := locker.WithTTL(t.Timing().TTL)
	a, b := t.Locker(ttl), t.Locker(ttl)
	t.Free(a, key) // the scripts are known, and the connections made
	h.sync(t, key)
	h.stopReplication(t, key)
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	deadline := lease.Deadline()
	h.killMaster(t, key)
	next := t.Granted(w, t.Timing().PollWithin)
	newer(t, next, lease)
	t.Ends(lease.Lost(), time.Until(deadline)+t.Timing().Slack, "Lost")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	t.Taken(t.Locker(), key) // the loser's Unlock left it alone
	t.NoError(next.Renew(t.Context()), "Renew")
	t.Unlock(next)
	t.FreeWithin(t.Timing().PollWithin, a, key)
}

func testHoldsDieWithMaster(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	a, b := t.Locker(locker.WithTTL(failoverTTL)), t.Locker(locker.WithTTL(failoverTTL))
	lease := t.Lock(a, key)
	h.sync(t, key)
	h.stopReplication(t, key)
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	w := t.Wait(b, key)
	h.killMaster(t, key)
	t.RenewedWithin(failoverTTL/2, lease)
	t.Unlock(inner)
	stranger := t.Locker()
	t.Taken(stranger, key)
	passOn(t, lease, w, stranger)
}

func testUnlockDiesWithMaster(t *conformance.T) {
	h, key := t.Harness().(*harness), t.Key("k")
	a, b := t.Locker(locker.WithTTL(failoverTTL)), t.Locker(locker.WithTTL(failoverTTL))
	lease := t.Lock(a, key)
	inner := t.LockUnder(lease.Context(t.Context()), a, key)
	h.sync(t, key)
	h.stopReplication(t, key)
	t.Unlock(inner)
	w := t.Wait(b, key)
	h.killMaster(t, key)
	t.RenewedWithin(failoverTTL/2, lease)
	passOn(t, lease, w, t.Locker())
}
