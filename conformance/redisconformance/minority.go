package redisconformance

import (
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// Cases returns the cases for a quorum of Redis servers beyond the suite, for
// [conformance.WithCases].
func (q Quorum) Cases() []conformance.Case {
	return slices.Concat(connectionCases, troubleCases(), poolCases, minorityCases, onLinux(minorityClockCases))
}

// Server faults.

func (h *quorumHarness) Persist() error        { return h.each((*harness).Persist) }
func (h *quorumHarness) Crash() error          { return h.each((*harness).Crash) }
func (h *quorumHarness) CutConnections() error { return h.each((*harness).CutConnections) }
func (h *quorumHarness) Recover() error        { return h.each((*harness).Recover) }

func (h *quorumHarness) Cause(trouble string) error {
	return h.each(func(n *harness) error { return n.Cause(trouble) })
}

// LoseCommand implements [conformance.Faults].
func (h *quorumHarness) LoseCommand(op conformance.Op) error {
	return h.each(func(n *harness) error { return n.LoseCommand(op) })
}

const minorityGroup = "minority"

var minorityCases = []conformance.Case{
	{Name: "MinorityDies", Group: minorityGroup, Rules: []string{"R1", "R11", "R13", "R15", "R21"}, Needs: conformance.Capabilities{Servers: true}, Isolated: true,
		Test:     func(t *conformance.T) { testMinority(t, (*harness).Crash, (*harness).Recover) },
		Contract: "when a minority of the servers dies holders keep their leases, others are refused, and keys change hands as before, and again when it is back"},
	{Name: "MinorityHangs", Group: minorityGroup, Rules: []string{"R1", "R11", "R13", "R15", "R21"}, Needs: conformance.Capabilities{Servers: true}, Isolated: true,
		Test:     func(t *conformance.T) { testMinority(t, (*harness).BlackHole, (*harness).Heal) },
		Contract: "when a minority of the servers does not answer holders keep their leases, others are refused, and keys change hands as before, and again when it is back"},
	{Name: "MinorityForgets", Group: minorityGroup, Rules: []string{"R1", "R11", "R13", "R15", "R21"}, Needs: conformance.Capabilities{Servers: true}, Isolated: true,
		Test: func(t *conformance.T) {
			testMinority(t, func(n *harness) error {
				if err := n.Crash(); err != nil {
					return err
				}
				return n.Recover()
			}, (*harness).Recover)
		},
		Contract: "when a minority of the servers is restarted empty holders keep their leases, others are refused, and keys change hands as before"},
}

var minorityClockCases = []conformance.Case{
	{Name: "ClocksJumpAhead", Group: minorityGroup, Rules: []string{"R1", "R9", "R11", "R21"}, Needs: conformance.Capabilities{Servers: true}, Isolated: true,
		Test:     func(t *conformance.T) { testClocksJump(t, time.Hour) },
		Contract: "when the clocks of a minority jump an hour ahead, so that what they know of expires, holders keep their leases and others are refused"},
	{Name: "ClocksJumpBack", Group: minorityGroup, Rules: []string{"R1", "R9", "R15", "R21"}, Needs: conformance.Capabilities{Servers: true}, Isolated: true,
		Test:     func(t *conformance.T) { testClocksJump(t, -time.Hour) },
		Contract: "when the clocks of a minority jump an hour back, so that nothing they know of expires, nobody is locked out by it, and tokens grow"},
}

func testMinority(t *conformance.T, begin, end func(*harness) error) {
	h := t.Harness().(*quorumHarness)
	minority := h.all[:(len(h.all)-1)/2]
	var events suite.EventLog
	a, b := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(&events)), t.Locker()
	lease := t.Lock(a, t.Key("k"))
	w := t.Wait(b, lease.Key())
	goesOn := func() {
		t.Helper()
		n := events.Count(locker.EventRenewed)
		t.Eventually(t.Timing().Patience, "renewals go on", func() bool { return events.Count(locker.EventRenewed) >= n+3 })
		t.Open(lease.Lost(), "Lost")
		t.Open(w.Done(), "a waiter's Lock returns on a held key")
		refused(t, t.Locker(), lease.Key())
	}
	for _, n := range minority {
		t.NoError(begin(n), "getting a server into trouble")
	}
	goesOn()
	t.Unlock(lease)
	next := t.Granted(w, t.Timing().Patience)
	newer(t, next, lease)

	lease, w = next, t.Wait(a, lease.Key())
	for _, n := range minority {
		t.NoError(end(n), "getting a server out of trouble")
	}
	t.RenewedWithin(t.Timing().Patience, lease)
	t.Open(w.Done(), "a waiter's Lock returns on a held key")
	refused(t, t.Locker(), lease.Key())
	t.Unlock(lease)
	next = t.Granted(w, t.Timing().Patience)
	newer(t, next, lease)
	t.Unlock(next)
}

func testClocksJump(t *conformance.T, by time.Duration) {
	h := t.Harness().(*quorumHarness)
	jumpers, rdbs := nodesThatJump(t, h.Nodes)
	open := func(opts ...locker.Option) locker.Locker {
		l, err := h.Quorum.New(rdbs, append(opts, suite.WithObserver(nil))...)
		t.NoError(err, "New")
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	jump := func(to time.Duration) {
		for _, s := range jumpers {
			s.SetClock(t, to)
		}
	}
	every := locker.WithRenewInterval(t.Timing().RenewEvery)
	a, b, c := open(every), open(every), open()
	lease := t.Lock(a, "k")
	abandoned := t.Lock(a, "abandoned", locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	w := t.Wait(b, "k")
	for _, to := range []time.Duration{by, 0} { // and back
		// One that lacked the claim and those that forget it would be a majority.
		t.Eventually(t.Timing().Prompt, "the lock is on every node a moment after the grant", func() bool { return onEveryNode(lease) })
		jump(to)
		for range 3 {
			before := lease.Deadline()
			t.Eventually(t.Timing().Patience, "renewals go on", func() bool { return lease.Deadline().After(before) })
		}
		t.Open(lease.Lost(), "Lost")
		t.Open(w.Done(), "a waiter's Lock returns on a held key")
		refused(t, c, "k")
		t.Unlock(lease)
		next := t.Granted(w, t.Timing().Patience)
		newer(t, next, lease)
		lease, w = next, t.Wait(a, "k")
		a, b = b, a

		// A key that no holder releases ends with its TTL, whatever a minority thinks.
		t.SleepPast(abandoned.Deadline())
		again, err := t.LockWithin(t.Timing().Patience, c, "abandoned")
		t.NoError(err, "Lock of a key whose holder is gone")
		newer(t, again, abandoned)
		t.Unlock(again)
		abandoned = t.Lock(c, "abandoned", locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	}
	w.Cancel()
	_ = t.Refused(w, t.Timing().Prompt)
	t.Unlock(lease)
}

// nodesThatJump starts n servers, of which a minority has clocks that can be set.
func nodesThatJump(t *conformance.T, n int) (jumpers []*redistest.Server, rdbs []redis.UniversalClient) {
	for i := range n {
		var opts []redistest.Option
		jumps := i < (n-1)/2
		if jumps {
			opts = append(opts, redistest.WithSettableClock())
		}
		s := redistest.Start(t, opts...)
		if jumps {
			jumpers = append(jumpers, s)
		}
		rdbs = append(rdbs, s.Client(t))
	}
	return jumpers, rdbs
}

// onEveryNode reports whether all servers have the lock, as far as the strategy knows.
func onEveryNode(l *locker.Lease) bool {
	have, of := l.Nodes()
	return have == of
}
