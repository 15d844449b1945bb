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

func did(s state, err error) answer { return answer{state: s, err: err} }

// bareHold is a hold on n nodes, whose commands are those of sends.
func bareHold(n int) *hold {
	d := &quorumDriver{closed: true} // nothing in the background
	for range n {
		d.nodes = append(d.nodes, &node{d: d})
	}
	return d.newHold(driver.Request{Claim: driver.Claim{TTL: time.Minute}})
}

func (h *hold) left(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[i].touched
}

func (h *hold) wants(kind opKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	what, nodes := h.undone()
	return what == kind && len(nodes) > 0
}

// sends has h do a command that is answered so.
func sends(t *testing.T, h *hold, kind opKind, a answer) answer {
	t.Helper()
	h.send = func(context.Context, int, opKind) answer { return a }
	return h.do(t.Context(), 0, kind)
}

// sendsNothing has h do a command that is not to be sent.
func sendsNothing(t *testing.T, h *hold, kind opKind) answer {
	t.Helper()
	h.send = func(context.Context, int, opKind) answer {
		t.Error("the command was sent")
		return answer{}
	}
	return h.do(t.Context(), 0, kind)
}

var errBroken = errors.New("broken pipe")

func TestHoldRemembersWhatMayBeThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		acquire answer
		left    bool
		again   bool // a release that finds nothing is repeated
	}{
		{"granted", did(yes, nil), true, false},
		{"refused", did(no, nil), false, false},
		{"unknown", did(failed, errBroken), true, true},
		{"something else is there", tried(driver.Answer{}, locker.ErrConflict), false, false},
		{"not sent", did(failed, &driver.StoreError{Err: errBroken, NotApplied: true}), false, false},
	} {
		h := bareHold(1)
		sends(t, h, opAcquire, tt.acquire)
		require.Equal(t, tt.left, h.left(0), tt.name)
		if !tt.left {
			require.Equal(t, no, sendsNothing(t, h, opConfirm).state, tt.name)
			require.Equal(t, no, sendsNothing(t, h, opRelease).state, tt.name)
			continue
		}
		sends(t, h, opRelease, did(failed, errBroken))
		require.True(t, h.left(0), "%s: a release without an answer", tt.name)
		sends(t, h, opRelease, did(no, nil))
		require.Equal(t, tt.again, h.left(0), "%s: a release that finds nothing", tt.name)
	}

	h := bareHold(1)
	sends(t, h, opAcquire, did(yes, nil))
	sends(t, h, opRelease, did(yes, nil))
	require.False(t, h.left(0))
	require.Equal(t, yes, sendsNothing(t, h, opRelease).state, "what was released stays released")

	h = bareHold(1)
	sends(t, h, opAcquire, did(failed, errBroken))
	sends(t, h, opConfirm, did(yes, nil))
	sends(t, h, opRelease, did(no, nil))
	require.False(t, h.left(0), "a command that was seen to arrive does not arrive again")
}

// That a node has the key once it was joined does not say that the attempt which it
// did not answer has arrived, too.
func TestLateAttemptBehindAJoin(t *testing.T) {
	t.Parallel()
	joined := func() *hold {
		h := bareHold(1)
		sends(t, h, opAcquire, did(failed, errBroken))
		sends(t, h, opRenew, did(no, nil))
		h.grant(time.Now())
		require.True(t, h.wants(opJoin))
		sends(t, h, opJoin, did(yes, nil))
		sends(t, h, opRenew, did(yes, nil))
		return h
	}
	h := joined()
	sends(t, h, opRelease, did(yes, nil))
	require.True(t, h.left(0), "that was what the join had set, the attempt may still arrive")
	sends(t, h, opRelease, did(yes, nil))
	require.False(t, h.left(0), "that was the attempt's")

	h = joined()
	sends(t, h, opRelease, did(no, nil))
	require.True(t, h.left(0), "what the join had set is gone, the attempt may still arrive")
	sends(t, h, opRelease, did(yes, nil))
	require.False(t, h.left(0), "that was the attempt's")

	h = bareHold(1)
	h.grant(time.Now())
	sends(t, h, opAcquire, did(failed, errBroken))
	sends(t, h, opJoin, did(failed, errBroken))
	sends(t, h, opJoin, did(yes, nil))
	for range 2 {
		sends(t, h, opRelease, did(yes, nil))
		require.True(t, h.left(0), "two more may arrive")
	}
	sends(t, h, opRelease, did(yes, nil))
	require.False(t, h.left(0))
}

// A renewal without an answer has the lock taken to the node again; if that is not sent the
// key may still be there.
func TestJoinThatIsNotSentSaysNothing(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	sends(t, h, opAcquire, did(yes, nil))
	h.grant(time.Now())
	h.doubt()
	sends(t, h, opRenew, did(failed, errBroken))
	require.False(t, h.wants(opJoin), "there may be no majority any more")
	h.grant(time.Now())
	require.True(t, h.wants(opJoin))
	sends(t, h, opJoin, did(failed, &driver.StoreError{Err: errBroken, NotApplied: true}))
	require.True(t, h.left(0))
	require.Equal(t, yes, sends(t, h, opRenew, did(yes, nil)).state, "it is asked, not taken for lost")
}

// A join that was decided on before a renewal put the lock in doubt is not sent after that.
func TestNoJoinInDoubt(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	sends(t, h, opAcquire, did(yes, nil))
	h.grant(time.Now())
	sends(t, h, opRenew, did(failed, errBroken))
	require.True(t, h.wants(opJoin))
	h.doubt()
	h.send = func(context.Context, int, opKind) answer {
		t.Error("sent")
		return did(yes, nil)
	}
	require.Equal(t, failed, h.do(t.Context(), 0, opJoin).state)
	require.True(t, h.left(0), "it may be there nevertheless")
}

// A lock is taken to a node once, however often that was decided on: by the second time the node may have lost it for good.
func TestJoinsOnce(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	h.grant(time.Now())
	sends(t, h, opJoin, did(yes, nil))
	require.Equal(t, yes, sendsNothing(t, h, opJoin).state)
	sends(t, h, opRenew, did(failed, errBroken))
	sends(t, h, opJoin, did(no, nil)) // it is not certain that the node has it
	require.Zero(t, h.count())
	require.Equal(t, yes, sends(t, h, opJoin, did(yes, nil)).state)
}

// A release without an answer may have freed the node: the next one, which finds nothing, does not
// say that the lock was lost before.
func TestReleaseBehindAnUnansweredRelease(t *testing.T) {
	t.Parallel()
	placed := func() *hold {
		h := bareHold(1)
		sends(t, h, opAcquire, did(yes, nil))
		h.grant(time.Now())
		h.close()
		return h
	}
	h := placed()
	sends(t, h, opRelease, did(failed, errBroken))
	require.Equal(t, yes, sends(t, h, opRelease, did(no, nil)).state, "the first release has freed the node")
	require.False(t, h.left(0))
	require.Equal(t, yes, sendsNothing(t, h, opRelease).state)

	h = placed()
	sends(t, h, opRelease, did(failed, &driver.StoreError{Err: errBroken, NotApplied: true}))
	require.Equal(t, no, sends(t, h, opRelease, did(no, nil)).state, "the first release was not sent")

	h = bareHold(1)
	sends(t, h, opAcquire, did(failed, errBroken))
	h.close()
	sends(t, h, opRelease, did(failed, errBroken))
	require.Equal(t, yes, sends(t, h, opRelease, did(no, nil)).state)
	require.True(t, h.left(0), "the attempt may still arrive")
}

// A renewal without an answer does not say that what is there is the late attempt's.
func TestLateAttemptBehindASilentRenewal(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	sends(t, h, opAcquire, did(failed, errBroken))
	h.grant(time.Now())
	sends(t, h, opJoin, did(yes, nil))
	sends(t, h, opRenew, did(failed, errBroken))
	require.Zero(t, h.count())
	sends(t, h, opRenew, did(yes, nil))
	require.Equal(t, 1, h.count())
	h.close()
	sends(t, h, opRelease, did(yes, nil))
	require.True(t, h.left(0), "the attempt may still arrive")
}

// After Close a hold sets no timers, however long its lease is.
func TestNothingIsTendedAfterClose(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	h.grant(time.Now())
	h.settle()
	require.True(t, h.tending)
	h.d.closed = true
	h.timer.Stop()
	h.tend()
	require.False(t, h.tending)
}

func TestHoldSetsNothingOnceReleaseBegan(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	h.close()
	for _, kind := range []opKind{opAcquire, opJoin} {
		a := sendsNothing(t, h, kind)
		require.Equal(t, failed, a.state)
		require.False(t, h.left(0))
	}
	h.grant(time.Now())
	require.False(t, h.wants(opJoin))
}

func TestHoldTakesTurns(t *testing.T) {
	t.Parallel()
	h := bareHold(2)
	sent, answered, through := make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.send = func(_ context.Context, _ int, kind opKind) answer {
		if kind == opAcquire {
			close(sent)
			<-answered
		}
		return answer{state: yes}
	}
	go func() {
		h.do(t.Context(), 0, opAcquire)
		close(through)
	}()
	<-sent
	h.close()
	h.nodes[1].touched = true
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.Equal(t, failed, h.do(short, 0, opRelease).state, "a release waits for the attempt it cleans up after")
	require.Equal(t, yes, h.do(t.Context(), 1, opRelease).state, "nodes do not wait for one another")
	close(answered)
	require.Equal(t, yes, h.do(t.Context(), 0, opRelease).state)
	<-through
}

// Leases that are not unlocked leave the table after they expired.
func TestHoldsAreSwept(t *testing.T) {
	t.Parallel()
	hs := holds{byID: make(map[string]*hold)}
	for i := range 10_000 {
		h := bareHold(3)
		h.req.ID, h.until = fmt.Sprint(i), time.Time{}
		h.grant(time.Now().Add(-time.Hour))
		if i%100 == 0 {
			h.grant(time.Now().Add(time.Hour))
		}
		hs.add(h)
	}
	require.Less(t, len(hs.byID), 1000)
	for i := 0; i < 10_000; i += 100 {
		require.NotNil(t, hs.get(fmt.Sprint(i)), "a lease in force")
	}
}

// A late answer to an older renewal does not move the end of the lease back.
func TestOldRenewalShortensNothing(t *testing.T) {
	t.Parallel()
	h, now := bareHold(3), time.Now()
	h.grant(now)
	h.grant(now.Add(-h.req.TTL / 2))
	require.Equal(t, now.Add(h.req.TTL), h.until)
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
		goleak.IgnoreAnyFunction("github.com/distlock/locker/conformance/faultproxy.(*conn).readReplies"),
		goleak.IgnoreAnyFunction("github.com/distlock/locker/internal/test/redistest.(*process).reap"))
}

// Two renewals of one claim overlap. The first has had its majority before all nodes lost their data, and another claim
// has come and gone since: while the second one asks, the lock is taken nowhere.
func TestNoJoinWhileALaterRenewalAsks(t *testing.T) {
	t.Parallel()
	h := bareHold(1)
	sends(t, h, opAcquire, did(yes, nil))
	h.grant(time.Now())
	first := h.doubt()
	sends(t, h, opRenew, did(yes, nil))
	second := h.doubt()
	sends(t, h, opRenew, did(no, nil))
	h.grant(first)
	require.False(t, h.wants(opJoin), "there may be no majority any more")
	h.grant(second)
	require.True(t, h.wants(opJoin))
}
