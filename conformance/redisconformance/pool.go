package redisconformance

import (
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/redis/go-redis/v9"
)

var poolCases = []conformance.Case{
	{Name: "PoolExhausted", Group: "faults", Rules: []string{"R11", "R17", "R18", "R20"}, Mode: conformance.Isolated, Test: testPoolExhausted,
		Contract: "when the caller has used up his pool of connections leases are renewed and released, TryLock is ErrUnavailable, and Lock waits for a connection"},
}

func testPoolExhausted(t *conformance.T) {
	h := t.Harness().(*harness)
	rdb := redis.NewClient(&redis.Options{Addr: h.nodes[0].Addr(), PoolSize: 1, PoolTimeout: t.Timing().RenewEvery})
	t.Cleanup(func() { _ = rdb.Close() })
	var events conformance.EventLog
	l, err := h.Strategy.New(rdb, locker.WithRenewInterval(t.Timing().RenewEvery), locker.WithObserver(&events))
	t.NoError(err, "New")
	defer l.Close()
	lease := t.Lock(l, t.Key("mine"), locker.WithTTL(t.Timing().TTL))

	conn := rdb.Conn()
	defer conn.Close()
	t.NoError(conn.Ping(t.Context()).Err(), "taking the only connection")
	_, err = l.TryLock(t.Context(), t.Key("free"))
	t.Is(err, locker.ErrUnavailable)
	t.Isnt(err, locker.ErrNotAcquired)
	w := t.Wait(l, t.Key("free"))
	renewed := events.Count(locker.EventRenewed)
	t.Eventually(t.Timing().Slack, "renewals go on", func() bool { return events.Count(locker.EventRenewed) >= renewed+3 })
	t.Open(lease.Lost(), "Lost")
	start := time.Now()
	t.Unlock(lease)
	if took := time.Since(start); took > t.Timing().Prompt {
		t.Errorf("Unlock took %v", took)
	}
	t.Open(w.Done(), "a Lock without a connection returns")
	t.NoError(conn.Close(), "giving the connection back")
	t.Unlock(t.Granted(w, t.Timing().Patience))
}
