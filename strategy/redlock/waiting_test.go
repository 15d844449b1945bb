package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

var isSubscribe = faultproxy.MatchCommand("SUBSCRIBE")

// waiter starts a Lock that has to wait, and returns when it listens to all nodes.
func waiter(t *testing.T, m *masters, l locker.Locker, key string) <-chan *locker.Lease {
	t.Helper()
	before := make([]int, len(m.proxies))
	for i, p := range m.proxies {
		before[i] = p.Count(isSubscribe)
	}
	got := make(chan *locker.Lease, 1)
	go func() {
		lease, err := l.Lock(t.Context(), key)
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	for i, p := range m.proxies {
		eventually(t, "the waiter subscribes on each node", func() bool { return p.Count(isSubscribe) > before[i] })
	}
	return got
}

func TestWaiterIsWoken(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	const turns = 5
	var took []time.Duration
	var rounds []int
	for range turns {
		holder, l := m.locker(t), m.locker(t)
		lease := lock(t, holder, "k")
		got := waiter(t, m, l, "k")
		for i := range m.direct {
			eventually(t, "the server knows of the subscription", func() bool {
				n, err := m.direct[i].PubSubNumSub(t.Context(), channelPrefix+"{k}").Result()
				return err == nil && n[channelPrefix+"{k}"] == 1
			})
		}
		attempts := m.proxies[0].Count(isOp("acquire"))
		began := time.Now()
		time.Sleep(300 * time.Millisecond) // somebody who polls would do it meanwhile
		// A look that began before, and one a second, each of which may ask a node twice.
		looks := 2 + int(time.Since(began)/time.Second)
		require.LessOrEqual(t, m.proxies[0].Count(isOp("acquire")), attempts+2*looks, "who is notified need not poll")
		freed, before := time.Now(), m.proxies[0].Count(isOp("acquire"))
		unlock(t, lease)
		next := <-got
		took = append(took, time.Since(freed))
		rounds = append(rounds, m.proxies[0].Count(isOp("acquire"))-before)
		unlock(t, next)
	}
	slices.Sort(took)
	slices.Sort(rounds)
	t.Logf("from Unlock to the waiter's grant: %v, and %d rounds", took, rounds)
	require.LessOrEqual(t, rounds[turns/2], 1, "the notice of a majority comes when the lock can be had")
	require.Less(t, took[turns/2], 600*time.Millisecond, "the first look that is not for a notice comes after 800 ms")
}

// With two nodes gone the notices of three must do.
func TestWaiterIsWokenByAMajority(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	holder, l := m.locker(t), m.locker(t)
	lease := lock(t, holder, "k")
	got := waiter(t, m, l, "k")
	m.kill(0)
	m.kill(1)
	unlock(t, lease)
	select {
	case next := <-got:
		unlock(t, next)
	case <-time.After(20 * time.Second):
		t.Fatal("a waiter takes a free lock with three nodes of five")
	}
}

// Contenders refuse one another when none gets a majority. That must end.
func TestSplitVotesEnd(t *testing.T) {
	t.Parallel()
	const contenders, turns = 5, 8
	m := startMasters(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside, attempts atomic.Int32
	var all sync.WaitGroup
	start := make(chan struct{})
	for range contenders {
		l := m.locker(t)
		all.Go(func() {
			<-start
			for turn := range turns {
				lease, err := l.Lock(ctx, "k")
				if err != nil {
					t.Errorf("turn %d: %v", turn, err)
					return
				}
				if inside.Add(1) > 1 {
					t.Error("two are inside")
				}
				inside.Add(-1)
				if err := lease.Unlock(ctx); err != nil {
					t.Errorf("turn %d: %v", turn, err)
				}
			}
		})
	}
	began := time.Now()
	close(start)
	all.Wait()
	for _, p := range m.proxies {
		attempts.Add(int32(p.Count(isOp("acquire"))))
	}
	t.Logf("%d turns took %v and %.1f attempts each", contenders*turns, time.Since(began), float64(attempts.Load())/5/contenders/turns)
}

// watched is a Watch of "k": one that a slow machine does not open in a second fails, and
// is opened again.
func watched(t *testing.T, d *quorumDriver) (w driver.Watch) {
	t.Helper()
	eventually(t, "a majority of the nodes is subscribed to", func() bool {
		var err error
		w, err = d.Watch(t.Context(), "k")
		return err == nil
	})
	return w
}

func TestWatchIsOverWithoutAMajority(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	w := watched(t, d)
	defer w.Close()
	ww := w.(*watch)
	drain := func() bool {
		select {
		case _, ok := <-w.C():
			return ok
		case <-time.After(time.Second):
			t.Fatal("no signal")
			return false
		}
	}
	// No other Locker subscribes, so that each notice below is ours.
	eventually(t, "all have subscribed", func() bool {
		ww.mu.Lock()
		defer ww.mu.Unlock()
		return len(ww.subs) == 3
	})
	ww.mu.Lock()
	clear(ww.told)
	ww.mu.Unlock()
	select {
	case <-w.C():
	default:
	}

	ww.notice(0)
	ww.notice(0)
	select {
	case <-w.C():
		t.Fatal("one node's notices are no majority")
	default:
	}
	ww.notice(2)
	require.True(t, drain(), "two nodes of three have given notice")
	ww.end(1)
	ww.notice(0)
	ww.notice(2)
	require.True(t, drain(), "two can still give notice")
	ww.end(1)
	ww.end(0)
	require.False(t, drain(), "with one node the watch is over")
	ww.end(2)
	ww.notice(2)
}

// A node that is down when a waiter subscribes gives notice to it once it is back.
func TestNodeThatComesBackGivesNotice(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	m.proxies[0].Refuse(true)
	w := watched(t, d)
	defer w.Close()
	eventually(t, "subscribing on the node has failed", func() bool {
		ww := w.(*watch)
		ww.mu.Lock()
		defer ww.mu.Unlock()
		return ww.mute[0]
	})
	m.proxies[0].Refuse(false)
	listening := func() bool {
		n, err := m.direct[0].PubSubNumSub(t.Context(), channelPrefix+"{k}").Result()
		return err == nil && n[channelPrefix+"{k}"] == 1
	}
	eventually(t, "the waiter subscribes on the node that was down", listening)
	m.kill(1)
	for len(w.C()) > 0 {
		<-w.C() // of the time before
	}
	// Notices that come further apart than noticeWindow are of two releases: there are
	// more of them on a machine that stops in between.
	eventually(t, "two nodes of three give notice", func() bool {
		for _, i := range []int{0, 2} {
			require.NoError(t, m.direct[i].Publish(t.Context(), channelPrefix+"{k}", "0").Err())
		}
		select {
		case _, open := <-w.C():
			require.True(t, open, "two nodes of three give notice")
			return true
		case <-time.After(noticeWindow):
			return false
		}
	})
}

func TestWatchOfTheDeadFails(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	m.kill(0)
	m.kill(1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := d.Watch(ctx, "k")
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "it is known without waiting for ctx")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Watch(gone, "k")
	require.Error(t, err)
}
