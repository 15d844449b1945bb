package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// masters are real servers, each behind a proxy.
type masters struct {
	servers []*redistest.Server
	proxies []*faultproxy.Proxy
	direct  []*redis.Client // not through the proxies
}

func startMasters(t *testing.T, n int) *masters {
	t.Helper()
	m := &masters{}
	for range n {
		s := redistest.Start(t)
		m.servers = append(m.servers, s)
		m.proxies = append(m.proxies, faultproxy.Start(t, s.Addr()))
		m.direct = append(m.direct, s.Client(t))
	}
	return m
}

// kill ends a server for good, and keeps whoever is given its port from answering for it.
func (m *masters) kill(i int) {
	m.servers[i].Kill()
	m.proxies[i].Refuse(true)
}

// clients are new ones with default options.
func (m *masters) clients(t *testing.T) []redis.UniversalClient {
	t.Helper()
	var rdbs []redis.UniversalClient
	for _, p := range m.proxies {
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	return rdbs
}

func (m *masters) locker(t *testing.T, opts ...locker.Option) locker.Locker {
	t.Helper()
	l, _ := m.open(t, opts...)
	return l
}

// open is locker and its driver. A node that is slow because the machine is does not
// count as absent, as it would by default after a second; tests of nodes that hang set
// a shorter time.
func (m *masters) open(t *testing.T, opts ...locker.Option) (locker.Locker, *quorumDriver) {
	t.Helper()
	d, err := newDriver(m.clients(t))
	require.NoError(t, err)
	l, err := locker.New(d, append([]locker.Option{WithNodeTimeout(20 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, d
}

// isOp matches the commands that run a script.
func isOp(names ...string) faultproxy.Match {
	return func(cmd []string) bool {
		return len(cmd) > 1 && strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && slices.Contains(names, redisconn.ScriptName(cmd[1]))
	}
}

var isAnyOp = isOp("acquire", "confirm", "renew", "join", "release")

// holder returns the value of key on node i; "" for none.
func (m *masters) holder(t *testing.T, i int, key string) string {
	t.Helper()
	v, err := m.direct[i].Get(context.WithoutCancel(t.Context()), key).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	return v
}

// fence is node i's fencing counter of key.
func (m *masters) fence(t *testing.T, i int, key string) int64 {
	t.Helper()
	v, err := m.direct[i].Get(t.Context(), redisdriver.FenceKey(key)).Int64()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	return v
}

// holds waits for node i to have key as the lease's.
func (m *masters) holds(t *testing.T, i int, lease *locker.Lease) {
	t.Helper()
	eventually(t, "the key is on node "+m.servers[i].Addr(), func() bool {
		return m.holder(t, i, lease.Key()) == lease.Owner()
	})
}

// placed waits for all nodes to have the lease of a Locker with driver d, and for the Locker to know it: no command that sets
// the key is on its way.
func (m *masters) placed(t *testing.T, d *quorumDriver, lease *locker.Lease) {
	t.Helper()
	eventually(t, "every node is known to have the key", func() bool {
		h := d.holds.get(lease.Owner())
		h.mu.Lock()
		defer h.mu.Unlock()
		return !slices.ContainsFunc(h.nodes, func(n holdNode) bool { return n.busy || n.late > 0 || !n.placed })
	})
}

// free waits for node i not to have key, for d at most.
func (m *masters) free(t *testing.T, d time.Duration, i int, key string) {
	t.Helper()
	within(t, d, "the key is gone from node "+m.servers[i].Addr()+", long before its TTL is over", func() bool {
		return m.holder(t, i, key) == ""
	})
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	within(t, 20*time.Second, what, cond)
}

// keyAskedAt is a key for which an attempt asks the node at first.
func keyAskedAt(node, nodes int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); firstNode(key, nodes) == node {
			return key
		}
	}
}

func within(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	pace.Eventually(t, d, what, cond)
}

func lock(t *testing.T, l locker.Locker, key string, opts ...locker.LockOption) *locker.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, key, opts...)
	require.NoError(t, err)
	return lease
}

func unlock(t *testing.T, lease *locker.Lease) {
	t.Helper()
	require.NoError(t, lease.Unlock(t.Context()))
}

// use locks and unlocks n keys.
func use(t *testing.T, l locker.Locker, n int) {
	t.Helper()
	for i := range n {
		unlock(t, lock(t, l, fmt.Sprint("k", i)))
	}
}

// sparesOf are the nodes that an attempt to get key does not ask at first.
func sparesOf(t *testing.T, d *quorumDriver, key string) (spares []int) {
	t.Helper()
	h := d.newHold(request(key))
	o := d.newOp(t.Context(), opAcquire, h)
	for i := range o.parts {
		if o.parts[i].spare {
			spares = append(spares, i)
		}
	}
	h.close()
	o.finish()
	require.Len(t, spares, len(d.nodes)-d.quorum)
	return spares
}

// request is an attempt to get key for a minute.
func request(key string) driver.Request {
	return driver.Request{Claim: driver.Claim{Key: key, ID: "b0000000-0000-8000-8000-000000000000:1", TTL: time.Minute}, Fencing: true}
}
