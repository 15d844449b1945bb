package otellocker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/distlock/locker"
	"github.com/distlock/locker/otellocker"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
)

// node is a set about a server.
func node(strategy, host string, port int) attribute.Set {
	return attribute.NewSet(attribute.String("locker.strategy", strategy), attribute.String("locker.node", fmt.Sprintf("%s:%d", host, port)),
		attribute.String("server.address", host), attribute.Int("server.port", port))
}

// A node of redlock that goes down is recorded, and that it is back.
func TestNodes(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	obs, err := otellocker.NewObserver(otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	told := make(chan bool, 10)
	var clients []redis.UniversalClient
	var servers []*miniredis.Miniredis
	for range 3 {
		s := miniredis.RunT(t)
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer c.Close()
		servers, clients = append(servers, s), append(clients, c)
	}
	l, err := redlock.New(clients, locker.WithObserver(locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
		obs.Observe(ctx, e)
		if e.Kind == locker.EventNode {
			told <- e.Err == nil
		}
	})))
	require.NoError(t, err)
	defer l.Close()
	// use locks and unlocks until a node is recorded.
	use := func() bool {
		end := time.After(20 * time.Second)
		for {
			lease, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			select {
			case well := <-told:
				require.NoError(t, lease.Unlock(t.Context()))
				return well
			case <-end:
				require.FailNow(t, "no node was told of")
			case <-time.After(10 * time.Millisecond): // so that the lock goes to every node
			}
			require.NoError(t, lease.Unlock(t.Context()))
		}
	}
	addr := servers[1].Addr()
	port, err := strconv.Atoi(servers[1].Port())
	require.NoError(t, err)
	require.Equal(t, servers[1].Host()+":"+servers[1].Port(), addr)
	set := node("redlock", servers[1].Host(), port)
	want := func(up int64) {
		t.Helper()
		all := collect(t, reader)
		require.Equal(t, "{node}", all["locker.node.up"].Unit)
		metricdatatest.AssertAggregationsEqual(t, metricdata.Gauge[int64]{DataPoints: []metricdata.DataPoint[int64]{{Attributes: set, Value: up}}},
			all["locker.node.up"].Data, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
		require.Equal(t, "{failure}", all["locker.node.failures"].Unit)
		metricdatatest.AssertAggregationsEqual(t, counts(point(1, set)),
			all["locker.node.failures"].Data, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	}
	servers[1].Close()
	require.False(t, use(), "the node is down")
	want(0)
	require.NoError(t, servers[1].Restart())
	require.True(t, use(), "it is back")
	want(1)
}

// A Locker that is closed while a server is down does not report it for ever.
func TestNodesOfAClosedLocker(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	obs, err := otellocker.NewObserver(otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	var reports []func(error)
	var ends []func()
	for range 2 {
		each, closed := obs.(locker.StatsObserver).ObserveLocker("redlock", func() locker.Stats { return locker.Stats{} })
		reports = append(reports, func(err error) {
			each.Observe(t.Context(), locker.Event{Kind: locker.EventNode, Strategy: "redlock", Node: "a:1", Err: err})
		})
		ends = append(ends, closed)
	}
	up := func() []metricdata.DataPoint[int64] {
		data, _ := collect(t, reader)["locker.node.up"].Data.(metricdata.Gauge[int64])
		return data.DataPoints
	}
	require.Empty(t, up())
	reports[0](errors.New("down"))
	require.Len(t, up(), 1)
	require.Zero(t, up()[0].Value)
	reports[1](nil)
	require.Equal(t, int64(1), up()[0].Value, "the last report counts")
	reports[0](errors.New("down"))
	require.Zero(t, up()[0].Value)
	ends[0]()
	require.Equal(t, int64(1), up()[0].Value, "the other Locker's report is left")
	ends[1]()
	require.Empty(t, up())
}
