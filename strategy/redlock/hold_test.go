package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func did(s state, err error) func() answer {
	return func() answer { return answer{state: s, err: err} }
}

func mustNotRun(t *testing.T) func() answer {
	t.Helper()
	return func() answer {
		t.Error("the command was sent")
		return answer{}
	}
}

var errBroken = errors.New("broken pipe")

func TestHoldRemembersWhatMayBeThere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, tt := range []struct {
		name    string
		acquire func() answer
		left    bool
		again   bool // a release that finds nothing is repeated
	}{
		{"granted", did(yes, nil), true, false},
		{"refused", did(no, nil), false, false},
		{"unknown", did(failed, errBroken), true, true},
		{"something else is there", func() answer { return tried(driver.Answer{}, locker.ErrConflict) }, false, false},
		{"not sent", did(failed, &driver.StoreError{Err: errBroken, NotApplied: true}), false, false},
	} {
		h := newHold(1, 1)
		h.do(ctx, 0, opAcquire, tt.acquire)
		require.Equal(t, tt.left, h.left(0), tt.name)
		if !tt.left {
			require.Equal(t, no, h.do(ctx, 0, opConfirm, mustNotRun(t)).state, tt.name)
			require.Equal(t, no, h.do(ctx, 0, opRelease, mustNotRun(t)).state, tt.name)
			continue
		}
		h.do(ctx, 0, opRelease, did(failed, errBroken))
		require.True(t, h.left(0), "%s: a release without an answer", tt.name)
		h.do(ctx, 0, opRelease, did(no, nil))
		require.Equal(t, tt.again, h.left(0), "%s: a release that finds nothing", tt.name)
	}

	h := newHold(1, 1)
	h.do(ctx, 0, opAcquire, did(yes, nil))
	h.do(ctx, 0, opRelease, did(yes, nil))
	require.False(t, h.left(0))
	require.Equal(t, yes, h.do(ctx, 0, opRelease, mustNotRun(t)).state, "what was released stays released")

	h = newHold(1, 1)
	h.do(ctx, 0, opAcquire, did(failed, errBroken))
	h.do(ctx, 0, opConfirm, did(yes, nil))
	h.do(ctx, 0, opRelease, did(no, nil))
	require.False(t, h.left(0), "a command that was seen to arrive does not arrive again")
}

// That a node has the key once it was joined does not say that the attempt which it
// did not answer has arrived, too.
func TestLateAttemptBehindAJoin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	joined := func() *hold {
		h := newHold(1, 1)
		h.do(ctx, 0, opAcquire, did(failed, errBroken))
		h.do(ctx, 0, opRenew, did(no, nil))
		require.True(t, h.beginJoin(0))
		h.do(ctx, 0, opJoin, did(yes, nil))
		h.do(ctx, 0, opRenew, did(yes, nil))
		return h
	}
	h := joined()
	h.do(ctx, 0, opRelease, did(yes, nil))
	require.True(t, h.left(0), "that was what the join had set, the attempt may still arrive")
	h.do(ctx, 0, opRelease, did(yes, nil))
	require.False(t, h.left(0), "that was the attempt's")

	h = joined()
	h.do(ctx, 0, opRelease, did(no, nil))
	require.True(t, h.left(0), "what the join had set is gone, the attempt may still arrive")
	h.do(ctx, 0, opRelease, did(yes, nil))
	require.False(t, h.left(0), "that was the attempt's")

	h = newHold(1, 1)
	h.do(ctx, 0, opAcquire, did(failed, errBroken))
	h.do(ctx, 0, opJoin, did(failed, errBroken))
	h.do(ctx, 0, opJoin, did(yes, nil))
	for range 2 {
		h.do(ctx, 0, opRelease, did(yes, nil))
		require.True(t, h.left(0), "two more may arrive")
	}
	h.do(ctx, 0, opRelease, did(yes, nil))
	require.False(t, h.left(0))
}

func TestHoldSetsNothingOnceReleaseBegan(t *testing.T) {
	t.Parallel()
	h := newHold(1, 1)
	h.close()
	for _, kind := range []opKind{opAcquire, opJoin} {
		a := h.do(t.Context(), 0, kind, mustNotRun(t))
		require.Equal(t, failed, a.state)
		require.False(t, h.left(0))
	}
	h.nodes[0].missing = true
	require.False(t, h.beginJoin(0))
}

func TestHoldTakesTurns(t *testing.T) {
	t.Parallel()
	h := newHold(2, 1)
	sent, answered := make(chan struct{}), make(chan struct{})
	go h.do(t.Context(), 0, opAcquire, func() answer {
		close(sent)
		<-answered
		return answer{state: yes}
	})
	<-sent
	h.close()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.Equal(t, failed, h.do(short, 0, opRelease, mustNotRun(t)).state, "a release waits for the attempt it cleans up after")
	h.do(t.Context(), 1, opRelease, did(yes, nil)) // nodes do not wait for one another
	close(answered)
	require.Equal(t, yes, h.do(t.Context(), 0, opRelease, did(yes, nil)).state)
}

func TestOneBackgroundReleaseForEachNode(t *testing.T) {
	t.Parallel()
	h := newHold(1, 1)
	require.False(t, h.beginLater(0), "nothing is there")
	h.do(t.Context(), 0, opAcquire, did(yes, nil))
	require.True(t, h.beginLater(0))
	require.False(t, h.beginLater(0), "one is under way")
	h.endLater(0)
	require.True(t, h.beginLater(0))
}

// Leases that nobody unlocks leave the table after they expired.
func TestHoldsAreSwept(t *testing.T) {
	t.Parallel()
	hs := holds{byID: make(map[string]*hold)}
	for i := range 10_000 {
		h := newHold(3, 1)
		h.lasts(time.Now(), -time.Second)
		if i%100 == 0 {
			h.lasts(time.Now(), time.Hour)
		}
		hs.add(fmt.Sprint(i), h)
	}
	require.Less(t, len(hs.byID), 1000)
	for i := 0; i < 10_000; i += 100 {
		require.NotNil(t, hs.get(fmt.Sprint(i)), "a lease in force")
	}
}

func TestNothingIsLeftOfLocks(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	l, d := m.open(t)
	other := m.locker(t)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 10 {
				lease, err := []locker.Locker{l, other}[i%2].Lock(t.Context(), fmt.Sprint(i%5))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = other.TryLock(t.Context(), lease.Key())
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "no claim is remembered", func() bool {
		d.holds.mu.Lock()
		defer d.holds.mu.Unlock()
		return len(d.holds.byID) == 0
	})
}

// In the worst case: with a black hole, a dead node, releases that wait for them, a
// lease held and a Lock waiting.
func TestCloseLeavesNothingRunning(t *testing.T) {
	m := startMasters(t, 5)
	rdbs := m.clients(t)
	before := goleak.IgnoreCurrent()
	l, err := New(rdbs)
	require.NoError(t, err)
	lease := lock(t, l, "held")
	for i := range 20 {
		held := lock(t, l, fmt.Sprint(i))
		if i == 10 {
			m.kill(0)
			m.proxies[1].Blackhole(true)
		}
		unlock(t, held)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Lock(t.Context(), "held")
		waiting <- err
	}()
	start := time.Now()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(start), 5*time.Second)
	require.ErrorIs(t, <-waiting, locker.ErrClosed)
	require.ErrorIs(t, context.Cause(lease.Context(t.Context())), locker.ErrClosed)
	require.NotEmpty(t, m.holder(t, 4, "held"), "Close does not unlock")
	require.NoError(t, lease.Unlock(t.Context()), "Unlock works after Close")
	m.free(t, 10*time.Second, 4, "held")
	for _, rdb := range rdbs {
		_ = rdb.Close()
	}
	goleak.VerifyNone(t, before,
		goleak.IgnoreAnyFunction("github.com/distlock/locker/conformance/faultproxy.(*conn).serve"),
		goleak.IgnoreAnyFunction("github.com/distlock/locker/conformance/faultproxy.(*conn).forwardReplies"),
		goleak.IgnoreAnyFunction("github.com/distlock/locker/internal/redistest.(*process).reap"))
}
