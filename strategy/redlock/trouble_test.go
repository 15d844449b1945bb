package redlock

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// told collects a Locker's log lines and events about its nodes.
type told struct {
	mu     sync.Mutex
	lines  bytes.Buffer
	events []locker.Event
}

func (w *told) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(b)
}

func (w *told) Observe(_ context.Context, e locker.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind == locker.EventNode {
		w.events = append(w.events, e)
	}
}

func (w *told) options() []locker.Option {
	return []locker.Option{locker.WithObserver(w), locker.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})))}
}

// of waits for as many events of a node, all that there are, and as many lines.
func (w *told) of(t *testing.T, node string, errs ...bool) {
	t.Helper()
	var got []bool
	var lines string
	eventually(t, "the node's events and lines", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = nil
		for _, e := range w.events {
			if e.Node == node {
				got = append(got, e.Err != nil)
			}
		}
		lines = w.lines.String()
		return len(got) >= len(errs) && strings.Count(lines, `msg="a node `) >= len(errs)
	})
	require.Equal(t, errs, got, "events of troubles and their ends")
	require.Equal(t, len(errs), strings.Count(lines, `msg="a node `), lines)
}

// A node that is down, and back, is reported once, however many leases there are.
func TestNodeThatIsDownIsToldOfOnce(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	var w told
	l, d := m.open(t, append(w.options(), WithNodeTimeout(30*time.Second))...)
	held := lock(t, l, "held")
	settled(t, m, held)
	node := m.proxies[2].Addr()
	m.proxies[2].Refuse(true)
	use(t, l, 300)
	w.of(t, node, true)
	m.proxies[2].Refuse(false)
	eventually(t, "the node is used again", func() bool {
		unlock(t, lock(t, l, "k"))
		return !d.nodes[2].isDown()
	})
	use(t, l, 300)
	w.of(t, node, true, false)
	unlock(t, held)
}

// A node that is slow, and not any more, is reported once.
func TestNodeThatIsSlowIsToldOfOnce(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	var w told
	l, _ := m.open(t, append(w.options(), WithNodeTimeout(8*time.Second))...) // it is slow after half of that
	unlock(t, lock(t, l, "warm-up"))
	slow := m.proxies[2].DelayReply(isAnyOp, 0, 4500*time.Millisecond)
	held := lock(t, l, "held")
	eventually(t, "the node is told to be slow", func() bool {
		use(t, l, 20)
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.events) > 0
	})
	w.of(t, m.proxies[2].Addr(), true)
	slow.Stop()
	eventually(t, "the node is told not to be slow any more", func() bool {
		use(t, l, 20)
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.events) > 1
	})
	w.of(t, m.proxies[2].Addr(), true, false)
	unlock(t, held)
}

// A slow node has a bound on what is outstanding there: it is not queued for.
func TestSlowNodeGathersNoGoroutines(t *testing.T) {
	const workers, most = 32, 500
	m := startMasters(t, 5)
	l := m.locker(t)
	unlock(t, lock(t, l, "warm-up"))
	m.proxies[0].DelayReply(isAnyOp, 0, 600*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				lease, err := l.Lock(context.Background(), fmt.Sprint(i, ":", n))
				if err == nil {
					err = lease.Unlock(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	peak := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		peak = max(peak, goroutines())
	}
	all.Wait()
	t.Logf("at most %d goroutines", peak)
	require.Less(t, peak, most)
}

// goroutines counts the goroutines, except those of the proxies and their servers.
func goroutines() (n int) {
	buf := make([]byte, 64<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range bytes.Split(buf, []byte("\n\n")) {
		if !bytes.Contains(g, []byte("conformance/faultproxy")) && !bytes.Contains(g, []byte("internal/test/redistest")) {
			n++
		}
	}
	return n
}

// A lease does not count a node on which its renewal failed, and takes its lock there again
// soon after the node is back, with no renewal in between.
func TestNodesCountsWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t, locker.WithTTL(long), locker.WithoutRenewal())
	lease := lock(t, l, "k")
	eventually(t, "the lock is on every node", func() bool { return have(lease) == 3 })
	m.servers[0].Kill()
	require.NoError(t, lease.Renew(t.Context()))
	eventually(t, "the node that is dead is not counted", func() bool { return have(lease) == 2 })
	eventually(t, "the node is down", d.nodes[0].isDown)
	m.servers[0].Restart(t)
	m.holds(t, 0, lease)
	eventually(t, "the lock is on every node again", func() bool { return have(lease) == 3 })
	unlock(t, lease)
}

// A node that is not needed is looked after, too.
func TestHungNodeThatIsNotNeededIsTold(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	var w told
	l, d := m.open(t, w.options()...)
	unlock(t, lock(t, l, "k"))
	for _, i := range sparesOf(t, d, "k") {
		p := m.proxies[i]
		p.Blackhole(true)
		eventually(t, "the node's trouble is told", func() bool {
			unlock(t, lock(t, l, "k")) // for less than it takes until the lock is taken there
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.events, func(e locker.Event) bool { return e.Node == p.Addr() && e.Err != nil })
		})
	}
}

// A node that answers with errors only is in trouble, though it is not down.
func TestNodeThatRefusesIsToldOfOnce(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	var w told
	l, _ := m.open(t, w.options()...)
	unlock(t, lock(t, l, "k"))
	node := m.proxies[1].Addr()
	require.NoError(t, m.direct[1].ConfigSet(t.Context(), "maxmemory", "1").Err())
	held := lock(t, l, "held")
	use(t, l, 50)
	w.of(t, node, true)
	require.NoError(t, held.Renew(t.Context()))
	require.NoError(t, m.direct[1].ConfigSet(t.Context(), "maxmemory", "0").Err())
	m.holds(t, 1, held)
	w.of(t, node, true, false)
	unlock(t, held)
}

// When a majority hangs the others are not told to be in trouble.
func TestOnlyHangingNodesAreTold(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	var w told
	l, _ := m.open(t, append(w.options(), WithNodeTimeout(8*time.Second))...) // they are slow after half of that
	unlock(t, lock(t, l, "warm-up"))
	hung := map[string]bool{}
	for _, p := range m.proxies[2:] {
		p.Blackhole(true)
		hung[p.Addr()] = true
	}
	eventually(t, "those that hang are told of", func() bool {
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		toldOf := map[string]bool{}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.events {
			require.True(t, hung[e.Node], "%v", e.Err)
			toldOf[e.Node] = true
		}
		return len(toldOf) == len(hung)
	})
}

// A node may take longer to connect to than it may take for a command.
func TestNodesFurtherAwayThanTheirTimeout(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	for _, p := range m.proxies {
		p.DelayReply(func([]string) bool { return true }, 0, 250*time.Millisecond)
	}
	l := m.locker(t, WithNodeTimeout(500*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	for err := lease.Unlock(ctx); err != nil; err = lease.Unlock(ctx) { // on a slow machine
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NoError(t, ctx.Err())
	}
}

// A vote that is split without a node that hangs, and is not yet known to, begins anew long
// before that node has had its time.
func TestHungNodeDoesNotHoldUpASplitVote(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 5)
	l, d := m.open(t, WithNodeTimeout(30*time.Second))
	unlock(t, lock(t, l, "warm-up"))
	for i := range 2 { // of two other contenders
		require.NoError(t, m.direct[i].Set(t.Context(), "k", fmt.Sprintf("a000000%d-0000-8000-8000-000000000000:1", i), long).Err())
	}
	m.proxies[4].Blackhole(true)
	granted := make(chan driver.Answer, 1)
	go func() {
		a, err := d.Acquire(t.Context(), request("k")) // not by the Locker, which ends it after two seconds
		if err != nil {
			t.Error(err)
		}
		granted <- a
	}()
	eventually(t, "the first try is cleaned up after", func() bool { return m.proxies[2].Count(isOp("release")) > 0 })
	for i := range 2 {
		require.NoError(t, m.direct[i].Del(t.Context(), "k").Err())
	}
	require.True(t, (<-granted).Granted)
	require.NoError(t, d.Release(t.Context(), request("k").Claim))
}
