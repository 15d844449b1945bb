package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/wake"
	"github.com/stretchr/testify/require"
)

// While Close waits for a call that is under way, the clean-up after that may begin.
func TestCloseLetsCleanUpsBegin(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	h := d.newHold(request("k"))
	o := d.newOp(t.Context(), opAcquire, h)
	require.NoError(t, o.mutex.TryLockContext(t.Context()))
	require.True(t, d.enter(), "the call")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.await(time.Minute)
	}()
	eventually(t, "Close waits", func() bool {
		d.life.Lock()
		defer d.life.Unlock()
		return d.running.Awaited()
	})
	h.close()
	o.finish()
	d.leave()
	<-closed
	for i := range m.servers {
		require.Empty(t, m.holder(t, i, "k"))
	}
	require.False(t, d.enter(), "nothing begins after that")
	require.False(t, d.background(func(context.Context) { t.Error("it runs") }))
}

// A lock that all nodes have forgotten during an outage is lost, and not taken to them again.
func TestLossOfEverythingIsNotUndone(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(long), locker.WithoutRenewal())
	lease := lock(t, l, "k")
	eventually(t, "the lock is on every node", func() bool { return have(lease) == 3 })
	var h *hold
	for _, h = range d.holds.byID {
	}
	for _, p := range m.proxies {
		p.Refuse(true)
	}
	require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrUnavailable)
	for i, p := range m.proxies {
		require.NoError(t, m.direct[i].FlushAll(t.Context()).Err())
		p.Refuse(false)
	}
	eventually(t, "all nodes are of use again", func() bool {
		return !slices.ContainsFunc(d.nodes, func(n *node) bool { return n.usable() != nil })
	})
	h.tend() // as its timer would have it
	eventually(t, "whatever was sent is answered", func() bool {
		d.life.Lock()
		defer d.life.Unlock()
		select {
		case <-d.running.Done():
			return true
		default:
			return false
		}
	})
	require.Zero(t, have(lease))
	// A connection that was cut may still be in use: what is sent by it is unavailable, and no proof of the loss.
	eventually(t, "the loss is noticed", func() bool { return errors.Is(lease.Renew(t.Context()), locker.ErrLost) })
	for i := range m.servers {
		require.Empty(t, m.holder(t, i, "k"))
	}
}

// A node that does not answer does not keep a held lock from another one.
func TestNodeThatHangsStallsNoOther(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t, locker.WithTTL(long), locker.WithoutRenewal(), WithNodeTimeout(20*time.Second))
	warm := lock(t, l, "warm-up")
	eventually(t, "all nodes are known", func() bool { return have(warm) == 5 })
	spares := sparesOf(t, d, "k")
	m.proxies[spares[0]].Blackhole(true)
	reset := m.proxies[spares[1]].ResetBefore(isOp("join", "acquire"), 1)
	lease := lock(t, l, "k")
	eventually(t, "the first command to the other is lost", func() bool { return reset.Fired() > 0 })
	within(t, 10*time.Second, "the other has the lock before the first has had its time", func() bool {
		return m.holder(t, spares[1], "k") == lease.Owner()
	})
	m.proxies[spares[0]].Blackhole(false)
	unlock(t, lease)
	unlock(t, warm)
}

// A lock that has a holder is refused at once, though some nodes have something else.
func TestHeldLockIsNoSplitVote(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l := m.locker(t, WithNodeTimeout(5*time.Minute))
	unlock(t, lock(t, l, "warm-up"))
	for k := range 8 { // each asks other nodes first
		key := fmt.Sprint("k", k)
		for i := range 5 {
			holder := "b0000000-0000-8000-8000-000000000000:1"
			if i >= 3 {
				holder = "c0000000-0000-8000-8000-000000000000:1" // a contender's that died
			}
			require.NoError(t, m.direct[i].Set(t.Context(), key, holder, long).Err())
		}
		_, err := l.TryLock(t.Context(), key)
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		n := 0
		for _, p := range m.proxies {
			n += p.Count(func(cmd []string) bool { return isOp("acquire")(cmd) && slices.Contains(cmd, key) })
		}
		require.Positive(t, n)
		require.LessOrEqual(t, n, 5, "one try for %s", key)
	}
}

// A node that is far away, and refuses, is asked less and less often, as a near one is.
func TestFarNodesAreAskedLessAndLessOften(t *testing.T) {
	t.Parallel()
	for _, phase := range []phase{held, closing} {
		synctest.Test(t, func(t *testing.T) {
			d := &quorumDriver{quorum: 1, base: t.Context(), log: slog.New(slog.DiscardHandler)}
			d.nodes = []*node{{d: d}}
			h := d.newHold(request("k"))
			sent := 0
			h.send = func(context.Context, int, opKind) answer {
				sent++
				time.Sleep(3 * firstPause) // the round trip, on the bubble's clock
				return did(failed, errBroken)
			}
			h.grant(time.Now())
			h.nodes[0].touched = true
			if phase == closing {
				h.close()
			}
			h.settle()
			time.Sleep(releaseBudget / 2) // on the bubble's clock
			synctest.Wait()
			require.Less(t, sent, 12, "commands in %v", releaseBudget/2)
			require.Greater(t, sent, 5)
			h.close()
			d.await(releaseBudget) // the last command, and the pause behind it
		})
	}
}

// A slow node is not left out if there is no majority without it.
func TestLagTakesNoMajorityAway(t *testing.T) {
	t.Parallel()
	d := &quorumDriver{quorum: 2}
	for range 3 {
		d.nodes = append(d.nodes, &node{d: d})
	}
	slow := d.nodes[2]
	slow.underWay.Store(10 * mostBehind)
	require.True(t, d.lags(slow))
	d.nodes[1].underWay.Store(10 * mostBehind)
	require.False(t, d.lags(slow), "the others are as busy")
	d.nodes[1].underWay.Store(0)
	d.nodes[0].down = errors.New("dead")
	require.False(t, d.lags(slow), "one of the others is dead")
}

// A lock that was held for a moment was on a majority, of which one node may be mute.
func TestMuteNodesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	d := &quorumDriver{quorum: 3, nodes: make([]*node, 5)}
	for mute, needed := range map[int]int{0: 3, 1: 2, 2: 1} {
		w := &watch{subscriptions: subscriptions{d: d, mute: make(map[int]bool)}, Signal: wake.New(), told: make(map[int]time.Time)}
		for i := range mute {
			w.end(4 - i)
		}
		for i := range needed {
			require.Empty(t, w.Signal, "%d notices with %d mute nodes", i, mute)
			w.notice(i)
		}
		require.Len(t, w.Signal, 1, "%d notices with %d mute nodes", needed, mute)
	}
}

// The operations of a Locker leave nothing on its context.
func TestContextsOfOperationsEnd(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t, WithNodeTimeout(time.Minute))
	h := d.newHold(request("k"))
	o := d.newOp(t.Context(), opAcquire, h)
	require.NoError(t, o.mutex.TryLockContext(t.Context()))
	o.finish()
	eventually(t, "its context has ended with the last node", func() bool { return o.ctx.Err() != nil })
	h.grant(time.Now())
	h.close()
	h.settle()
	for i := range m.servers {
		m.free(t, 10*time.Second, i, "k")
	}
}
