package strategies

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// layoutFile is what a lock looks like in Redis: layout 1 of docs/versioning.md. A change of it is a
// new layout, with rules of its own for a rolling deploy; -layout writes the file then.
const layoutFile = "testdata/layout-1.txt"

var writeLayout = flag.Bool("layout", false, "write "+layoutFile+" instead of comparing with it")

type redisLocker = func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)

// redisLockers exclude one another on one server.
var redisLockers = map[string]redisLocker{"setnx": setnx.New, "hashreentrant": hashreentrant.New, "blpop": blpop.New}

// onLayout are the lockers that the layout of a strategy has to keep out, with the servers on which they lock.
func onLayout(t *testing.T, strategy string) (lockers map[string]redisLocker, nodes []redis.UniversalClient) {
	t.Helper()
	if strategy != "redlock" {
		return redisLockers, []redis.UniversalClient{redistest.Start(t).Client(t)}
	}
	for range 3 {
		nodes = append(nodes, redistest.Start(t).Client(t))
	}
	return map[string]redisLocker{"redlock": func(_ redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		return redlock.New(nodes, opts...)
	}}, nodes
}

// TestLayoutIsKept: what is stored is what docs/versioning.md promises to store.
func TestLayoutIsKept(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, name := range append(slices.Sorted(maps.Keys(redisLockers)), "redlock") {
		for _, c := range []struct{ what, owner string }{{"without an owner's name", ""}, {"of the owner worker", "worker"}} {
			lockers, nodes := onLayout(t, name)
			l, err := lockers[name](nodes[0])
			require.NoError(t, err)
			ctx := t.Context()
			if c.owner != "" {
				ctx = locker.ContextWithOwner(ctx, c.owner)
			}
			lease, err := l.Lock(ctx, "k", locker.WithTTL(time.Minute))
			require.NoError(t, err)
			text := stored(t, nodes[0])
			for _, node := range nodes[1:] {
				require.Equal(t, text, stored(t, node), "the nodes of %s differ", name)
			}
			fmt.Fprintf(&got, "%s, a lock %s\n%s\n", name, c.what, text)
			require.NoError(t, lease.Unlock(t.Context()))
			require.NoError(t, l.Close())
		}
	}
	if *writeLayout {
		require.NoError(t, os.WriteFile(layoutFile, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "the layout has changed: see docs/versioning.md")
}

// stored has a line for each key and field, with signs for ids, tokens and times. A node of redlock that was not needed
// for the grant may get the lock a little later: its scripts write both keys at once.
func stored(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	var keys []string
	for ends := time.Now().Add(10 * time.Second); len(keys) == 0 && time.Now().Before(ends); {
		var err error
		keys, err = rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
	}
	slices.Sort(keys)
	var lines []string
	for _, key := range keys {
		kind, err := rdb.Type(t.Context(), key).Result()
		require.NoError(t, err)
		expires := "expires"
		if rdb.PTTL(t.Context(), key).Val() < 0 {
			expires = "for ever"
		}
		lines = append(lines, fmt.Sprintf("  %s: %s, %s", key, kind, expires))
		switch kind {
		case "string":
			lines = append(lines, "    "+rdb.Get(t.Context(), key).Val())
		case "hash":
			var fields []string
			for field, value := range rdb.HGetAll(t.Context(), key).Val() {
				fields = append(fields, "    "+field+" = "+value)
			}
			slices.Sort(fields)
			lines = append(lines, fields...)
		default:
			t.Errorf("%s is a %s: describe its members here", key, kind)
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	text = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(text, "UUID")
	text = regexp.MustCompile(`\b\d{16}\b`).ReplaceAllString(text, "TOKEN")
	return regexp.MustCompile(`\b\d{13}\b`).ReplaceAllString(text, "TIME")
}

// TestOldLayoutIsRespected: locks that were stored by layout 1, byte by byte, keep out every strategy of this
// version, are reported by Inspect, stay as they are, and their tokens are exceeded.
func TestOldLayoutIsRespected(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	const token = int64(1_900_000_000_000_000) // ahead of the clock: only the counter makes greater ones
	locks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	require.Len(t, locks, 2*(len(redisLockers)+1))
	for _, lock := range locks {
		head, body, _ := strings.Cut(lock, "\n")
		t.Run(strings.ReplaceAll(head, " ", "-"), func(t *testing.T) {
			t.Parallel()
			strategy, _, _ := strings.Cut(head, ",")
			lockers, nodes := onLayout(t, strategy)
			for _, node := range nodes {
				restore(t, node, body, token)
			}
			// The field without a name is left out: blpop keeps its waiters there.
			holds := func() (kept []string) {
				for _, node := range nodes {
					kept = append(kept, strings.Split(stored(t, node), "\n")...)
				}
				return slices.DeleteFunc(kept, func(line string) bool { return strings.HasPrefix(line, "     = ") })
			}
			before := holds()
			for name, newLocker := range lockers {
				l, err := newLocker(nodes[0])
				require.NoError(t, err)
				defer l.Close()
				_, err = l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, locker.ErrNotAcquired, name)
				holder, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err, name)
				require.True(t, holder.Held, name)
				require.Equal(t, before, holds(), "%s has changed it", name)
			}
			l, err := lockers[strings.Replace(strategy, "setnx", "blpop", 1)](nodes[0])
			require.NoError(t, err)
			defer l.Close()
			for _, node := range nodes {
				require.NoError(t, node.Del(t.Context(), "k").Err()) // as its TTL would
			}
			lease, err := l.Lock(t.Context(), "k", locker.WithWait(20*time.Second))
			require.NoError(t, err)
			require.Greater(t, lease.Token(), token)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

// restore stores what the layout describes, for a minute.
func restore(t *testing.T, rdb redis.UniversalClient, body string, token int64) {
	t.Helper()
	ends := time.Now().Add(time.Minute)
	body = strings.NewReplacer("UUID", "0f0e0d0c-1111-4222-8333-444455556666",
		"TOKEN", fmt.Sprint(token), "TIME", fmt.Sprint(ends.UnixMilli())).Replace(body)
	key, kind := "", ""
	var all []string
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		value, isValue := strings.CutPrefix(line, "    ")
		if !isValue {
			key, kind, _ = strings.Cut(strings.TrimSpace(line), ": ")
			all = append(all, key)
			continue
		}
		if strings.HasPrefix(kind, "hash") {
			field, count, _ := strings.Cut(value, " = ")
			require.NoError(t, rdb.HSet(context.Background(), key, field, count).Err())
		} else {
			require.NoError(t, rdb.Set(context.Background(), key, value, 0).Err())
		}
	}
	for _, key := range all {
		require.NoError(t, rdb.PExpireAt(context.Background(), key, ends).Err())
	}
}
