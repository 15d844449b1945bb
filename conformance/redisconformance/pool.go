package redisconformance

import (
	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/redis/go-redis/v9"
)

var poolCases = []conformance.Case{
	{Name: "PoolExhausted", Group: "faults", Rules: []string{"R11", "R17", "R18", "R20"}, Isolated: true, Fault: true, Test: testPoolExhausted,
		Contract: "when the caller has used up the connections of its client, locks are taken, renewed and released all the same"},
}

func testPoolExhausted(t *conformance.T) {
	var addrs []string
	var open func([]redis.UniversalClient, ...locker.Option) (*locker.Client, error)
	switch h := t.Harness().(type) {
	case *harness:
		addrs = []string{h.nodes[0].Addr()}
		open = func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
			return h.Strategy.New(rdbs[0], opts...)
		}
	case *quorumHarness:
		for _, n := range h.all {
			addrs = append(addrs, n.nodes[0].Addr())
		}
		open = h.Quorum.New
	}
	var rdbs []redis.UniversalClient
	var conns []*redis.Conn
	for _, addr := range addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, PoolTimeout: t.Timing().RenewEvery})
		t.Cleanup(func() { _ = rdb.Close() })
		rdbs, conns = append(rdbs, rdb), append(conns, rdb.Conn())
	}
	var events suite.EventLog
	l, err := open(rdbs, locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(&events))
	t.NoError(err, "New")
	defer l.Close()
	lease := t.Lock(l, t.Key("mine"), locker.WithTTL(t.Timing().TTL))

	for _, conn := range conns {
		t.NoError(conn.Ping(t.Context()).Err(), "taking the only connection")
	}
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	t.Unlock(t.TryLock(l, t.Key("free")))
	renewed := events.Count(locker.EventRenewed)
	t.Eventually(t.Timing().Slack, "renewals go on", func() bool { return events.Count(locker.EventRenewed) >= renewed+3 })
	t.Open(lease.Lost(), "Lost")
	t.Prompt("Unlock", func() { t.Unlock(lease) })
}
