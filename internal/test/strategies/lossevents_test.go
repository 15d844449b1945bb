package strategies

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// foreign is a change that another program makes to a held key.
type foreign struct {
	name, flags string // notify-keyspace-events; "": those that docs/operating.md names
	hash        bool   // only where the lock is a hash
	str         bool   // only where it is a string
	do          func(ctx context.Context, rdb redis.UniversalClient, key string) error
}

// command is one command, in which % is the held key.
func command(name string, words ...string) foreign {
	return foreign{name: name, do: func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = strings.ReplaceAll(w, "%", key)
		}
		return rdb.Do(ctx, args...).Err()
	}}
}

func (f foreign) onString() foreign { f.str = true; return f }

func (f foreign) with(flags string) foreign { f.flags = flags; return f }

// foreigners are the changes after which the holder's claim is not at the key any more. Some copy a key of the test's.
func foreigners() (all []foreign) {
	fields := foreign{name: "HDEL", hash: true, do: func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		names, err := rdb.HKeys(ctx, key).Result()
		if err != nil {
			return err
		}
		return rdb.HDel(ctx, key, names...).Err()
	}}
	restore := foreign{name: "RESTORE", do: func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		dump, err := rdb.Dump(ctx, "string").Result()
		if err != nil {
			return err
		}
		return rdb.RestoreReplace(ctx, key, time.Hour, dump).Err()
	}}
	all = []foreign{
		fields, restore,
		command("APPEND", "append", "%", "x").onString(), command("SETRANGE", "setrange", "%", "0", "x").onString(),
		command("SETBIT", "setbit", "%", "0", "1").onString(), command("BITFIELD", "bitfield", "%", "set", "u8", "0", "255").onString(),
		command("GETSET", "getset", "%", "x").onString(),
		command("SETEX", "setex", "%", "3600", "x"), command("MSET", "mset", "%", "x"), command("UNLINK", "unlink", "%"),
		command("BITOP", "bitop", "not", "%", "string"), command("MOVE", "move", "%", "1"),
		command("RENAME from", "rename", "%", "%-elsewhere"), command("RENAME to", "rename", "renamed-%", "%"),
		command("EXPIRE to now", "expire", "%", "0"),
		command("PEXPIREAT in the past", "pexpireat", "%", "1"), command("EXPIRE to soon", "pexpire", "%", "200"),
		command("SINTERSTORE of nothing", "sinterstore", "%", "none"),
		command("SUNIONSTORE", "sunionstore", "%", "set").with("KA"), command("ZUNIONSTORE", "zunionstore", "%", "1", "zset").with("KA"),
		command("SORT STORE", "sort", "list", "store", "%").with("KA"),
	}
	if redistest.AtLeast(6, 2) { // the release that these commands came with
		all = append(all, command("COPY", "copy", "string", "%", "replace"), command("GETDEL", "getdel", "%").onString(),
			command("GEOSEARCHSTORE", "geosearchstore", "%", "place", "fromlonlat", "1", "1", "byradius", "9", "km").with("KA"))
	}
	return all
}

// A change by which a command of another program takes the key from its holder is noticed at once.
func TestLossDetectionSeesForeignCommands(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, notifying)
			rdb := srv.Client(t)
			l, err := newLocker(srv.Client(t), locker.WithLossDetection(), locker.WithTTL(watchedTTL))
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			require.NoError(t, rdb.Set(t.Context(), "string", "foreign", 0).Err())
			require.NoError(t, rdb.SAdd(t.Context(), "set", "1").Err())
			require.NoError(t, rdb.ZAdd(t.Context(), "zset", redis.Z{Member: "1"}).Err())
			require.NoError(t, rdb.RPush(t.Context(), "list", "1").Err())
			require.NoError(t, rdb.GeoAdd(t.Context(), "place", &redis.GeoLocation{Name: "x", Longitude: 1, Latitude: 1}).Err())
			for _, f := range foreigners() {
				lease := heldAs(t, l, rdb, f)
				if lease == nil {
					continue
				}
				require.NoError(t, f.do(t.Context(), rdb, f.name), f.name)
				lost(t, map[string]*locker.Lease{name: lease}, f.name)
			}
		})
	}
}

// heldAs locks the key of f, and returns when it is watched. It returns nil if f is for locks of another type.
func heldAs(t *testing.T, l locker.Locker, rdb *redis.Client, f foreign) *locker.Lease {
	t.Helper()
	flags := f.flags
	if flags == "" {
		flags = "Kg$xeh"
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "notify-keyspace-events", flags).Err())
	require.NoError(t, rdb.Set(t.Context(), "renamed-"+f.name, "foreign", 0).Err())
	lease, err := l.Lock(t.Context(), f.name)
	require.NoError(t, err)
	kind := rdb.Type(t.Context(), f.name).Val()
	if f.hash && kind != "hash" || f.str && kind != "string" {
		require.NoError(t, lease.Unlock(t.Context()))
		return nil
	}
	end := lease.Deadline()
	require.Eventually(t, func() bool { return lease.Deadline().After(end) }, changeTakes, time.Millisecond, "it is renewed when it is watched")
	return lease
}

// Forged notifications, as many as a program can send, cost a question a second for each lock, and no subscription. Some are
// empty: the Locker's own subscriptions report a new connection by an empty message.
func TestForgedNotificationsCostLittle(t *testing.T) {
	srv := redistest.Start(t, notifying)
	proxy := faultproxy.Start(t, srv.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	l, err := onOneRedis["setnx"](rdb, locker.WithLossDetection(), locker.WithTTL(watchedTTL))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	leases := make(map[string]*locker.Lease)
	for _, key := range []string{"a", "b", "c"} {
		leases[key] = heldAs(t, l, srv.Client(t), foreign{name: key})
	}
	sent := func() int { return proxy.Count(func([]string) bool { return true }) }
	before, begun, forged := sent(), time.Now(), 0
	admin := srv.Client(t)
	for time.Since(begun) < 3*time.Second {
		_, err := admin.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 500 {
				p.Publish(t.Context(), "__keyspace@0__:"+[]string{"a", "b"}[i%2], []string{"del", "", "set", "x"}[i/2%4])
			}
			return nil
		})
		require.NoError(t, err)
		forged += 500
		time.Sleep(time.Until(begun.Add(time.Duration(forged) * 100 * time.Microsecond))) // the pace of the storm: 10,000 a second
	}
	seconds := int(time.Since(begun)/time.Second) + 2 // the first and the last question
	t.Logf("%d commands for %d forged notifications in %v", sent()-before, forged, time.Since(begun))
	require.LessOrEqual(t, sent()-before, 2*seconds+1, "a question a second for a and b, and a ping")
	for key, lease := range leases {
		require.NoError(t, lease.Err(), key)
		require.NoError(t, lease.Unlock(t.Context()), key)
	}
}
