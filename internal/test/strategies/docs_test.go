package strategies

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// documentedRules are the permissions that docs/strategies.md grants the users of each strategy, and the
// operator.
func documentedRules(t *testing.T) map[string][]string {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/strategies.md")
	require.NoError(t, err)
	rules := make(map[string][]string)
	for _, m := range regexp.MustCompile(`(?m)^# (\w+).*\nACL SETUSER \w+ on >secret (.*)$`).FindAllStringSubmatch(string(doc), -1) {
		rules[m[1]] = strings.Fields(m[2])
	}
	return rules
}

// TestDocumentedPermissions: what docs/strategies.md grants a user is enough.
func TestDocumentedPermissions(t *testing.T) {
	rules := documentedRules(t)
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, rules[name])
			redisconformance.RunAs(t, redisconformance.Strategy{
				Name: name, New: newLocker, StoredHolds: name != "setnx", Permits: true, Fair: name == "blpop",
				Notified: wakes(name),
			}, rules[name]...)
		})
	}
	t.Run("operator", func(t *testing.T) { operateAs(t, rules["operator"]) })
	t.Run("redlock", func(t *testing.T) { lockOnNodesAs(t, rules["redlock"], rules["operator"]) })
}

// operateAs inspects and ends locks of each strategy as a user with these rules.
func operateAs(t *testing.T, rules []string) {
	t.Helper()
	t.Parallel()
	require.NotEmpty(t, rules)
	srv := redistest.Start(t)
	srv.AddUser(t, "operator", "secret", rules...)
	for name, newLocker := range onOneRedis {
		open := func(o *redis.Options) locker.Locker {
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			l, err := newLocker(rdb, locker.WithPrefix("app:"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
		lease, err := open(srv.Options()).Lock(t.Context(), name)
		require.NoError(t, err)
		waiter, granted := open(srv.Options()), make(chan error)
		go func() {
			_, err := waiter.Lock(t.Context(), name)
			granted <- err
		}()
		o := srv.Options()
		o.Username, o.Password = "operator", "secret"
		for h, err := range open(o).(*locker.Client).Holders(t.Context(), name) {
			require.NoError(t, err)
			require.Equal(t, lease.Owner(), h.Owner)
			require.NoError(t, open(o).(*locker.Client).ForceUnlock(t.Context(), h))
		}
		require.NoError(t, <-granted)
		breakPermits(t, open(srv.Options()), open(o).(*locker.Client), name+"/permits")
	}
	require.Empty(t, srv.Denied(t))
}

// breakPermits lets an operator end two permits of one key, of which the first ends before the second.
func breakPermits(t *testing.T, l locker.Locker, operator *locker.Client, key string) {
	t.Helper()
	permits, err := locker.NewSemaphore(l, key, 2)
	require.NoError(t, err)
	for _, ttl := range []time.Duration{time.Minute, 30 * time.Second} {
		_, err := permits.Acquire(t.Context(), locker.WithTTL(ttl))
		require.NoError(t, err)
	}
	broken := 0
	for h, err := range operator.Permits(t.Context(), key) {
		require.NoError(t, err)
		require.NoError(t, operator.ForceUnlock(t.Context(), h))
		broken++
	}
	require.Equal(t, 2, broken)
}

// lockOnNodesAs locks, renews, waits and unlocks by redlock as a user with these rules, and ends a lock as an operator.
func lockOnNodesAs(t *testing.T, rules, operators []string) {
	t.Helper()
	t.Parallel()
	require.NotEmpty(t, rules)
	var nodes []*redistest.Server
	open := func(user string) *locker.Client {
		var rdbs []redis.UniversalClient
		for _, srv := range nodes {
			rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: user, Password: "secret"})
			t.Cleanup(func() { _ = rdb.Close() })
			rdbs = append(rdbs, rdb)
		}
		l, err := redlock.New(rdbs, locker.WithPrefix("app:"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	for range 3 {
		srv := redistest.Start(t)
		srv.AddUser(t, "locks", "secret", rules...)
		srv.AddUser(t, "operator", "secret", operators...)
		nodes = append(nodes, srv)
	}
	ctx, a, b := t.Context(), open("locks"), open("locks")
	lease, err := a.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Renew(ctx))
	_, err = b.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	operator := open("operator")
	for _, end := range []func(){
		func() { require.NoError(t, lease.Unlock(ctx)) },
		func() {
			h, err := operator.Inspect(ctx, "k")
			require.NoError(t, err)
			require.NoError(t, operator.ForceUnlock(ctx, h))
			require.ErrorIs(t, lease.Unlock(ctx), locker.ErrLost)
		},
	} {
		next := make(chan *locker.Lease, 1)
		go func() {
			defer close(next)
			if lease, err := b.Lock(ctx, "k"); err == nil {
				next <- lease
			}
		}()
		// Until it waits, by a subscription on each node.
		for _, srv := range nodes {
			rdb := srv.Client(t)
			require.Eventually(t, func() bool {
				channels, err := rdb.PubSubChannels(ctx, "locker:released:*").Result()
				return err == nil && len(channels) == 1
			}, 10*time.Second, time.Millisecond)
		}
		end()
		lease = <-next
		require.NotNil(t, lease)
		a, b = b, a
	}
	require.NoError(t, lease.Unlock(ctx))
	for _, srv := range nodes {
		require.Empty(t, srv.Denied(t))
	}
}
