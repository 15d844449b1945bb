package redisconformance

import (
	"runtime"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// onLinux leaves cases out where a server's clock cannot be set.
func onLinux(cases []conformance.Case) []conformance.Case {
	if runtime.GOOS != "linux" {
		return nil
	}
	return cases
}

var clockCases = []conformance.Case{
	{Name: "ClockJumpsAhead", Group: "faults", Rules: []string{"R2", "R9", "R10", "R21"}, Isolated: true, Fault: true, Test: testClockJumpsAhead,
		Contract: "when the server's clock jumps an hour ahead, so that locks expire, holders know by the next renewal, and the next holder has a greater token"},
	{Name: "ClockJumpsBack", Group: "faults", Rules: []string{"R9", "R11", "R21"}, Isolated: true, Fault: true, Test: testClockJumpsBack,
		Contract: "when the server's clock jumps an hour back leases are renewed and released as before, and tokens grow"},
}

// clocked makes Lockers on a server of their own whose clock can be set.
func clocked(t *conformance.T, lockers int) (*redistest.Server, []locker.Locker) {
	h := t.Harness().(*harness)
	srv := redistest.Start(t, redistest.WithSettableClock())
	var ls []locker.Locker
	for range lockers {
		rdb := redis.NewClient(srv.Options())
		t.Cleanup(func() { _ = rdb.Close() })
		l, err := h.Strategy.New(rdb, locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(nil))
		t.NoError(err, "New")
		t.Cleanup(func() { _ = l.Close() })
		ls = append(ls, l)
	}
	return srv, ls
}

func testClockJumpsAhead(t *conformance.T) {
	srv, ls := clocked(t, 3)
	ttl := locker.WithTTL(t.Timing().TTL)
	lease := t.Lock(ls[0], "k", ttl)
	w := t.Wait(ls[1], "k", ttl)
	srv.SetClock(t, time.Hour)
	next := t.Granted(w, t.Timing().PollWithin)
	t.Ends(lease.Lost(), t.Timing().RenewEvery+t.Timing().Slack, "the loss of a lock that has expired")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	newer(t, next, lease)
	t.Taken(ls[2], "k")
	t.NoError(next.Renew(t.Context()), "Renew")
	t.Unlock(next)
}

func testClockJumpsBack(t *conformance.T) {
	srv, ls := clocked(t, 3)
	ttl := locker.WithTTL(t.Timing().TTL)
	lease := t.Lock(ls[0], "k", ttl)
	w := t.Wait(ls[1], "k", ttl)
	srv.SetClock(t, -time.Hour)
	for range 3 {
		before := lease.Deadline()
		t.Eventually(t.Timing().Slack, "renewals go on", func() bool { return lease.Deadline().After(before) })
	}
	t.Taken(ls[2], "k")
	passOn(t, lease, w, ls[2])
}
