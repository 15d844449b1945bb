package strategies

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
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

// entry is something that a strategy stores.
type entry struct {
	what, owner string
	permits     int
	waits       bool // the owner waits behind a lock
	bids        bool // another Locker waits for two permits
}

var entries = []entry{
	{what: "a lock without an owner's name"},
	{what: "a lock of the owner worker", owner: "worker"},
	{what: "two of two permits of the owner worker", owner: "worker", permits: 2},
	{what: "a permit of the owner worker" + aBid, owner: "worker", permits: 1, bids: true},
	{what: "a lock for which the owner worker waits", owner: "worker", waits: true},
}

// of reports whether the strategy stores it.
func (e entry) of(strategy string) bool {
	return (e.permits == 0 || strategy != "redlock") && (!e.waits || strategy == "blpop")
}

// take makes a Locker store it, for a minute. newLocker makes a Locker that waits.
func (e entry) take(t *testing.T, rdb redis.UniversalClient, l *locker.Client, newLocker redisLocker) *locker.Lease {
	t.Helper()
	ctx, named := t.Context(), t.Context()
	if e.owner != "" {
		named = locker.ContextWithOwner(ctx, e.owner)
	}
	minute := locker.WithTTL(time.Minute)
	if e.permits > 0 {
		permits := func(ctx context.Context, l *locker.Client, n int) (*locker.Lease, error) {
			sem, err := locker.NewSemaphore(l, "k", 2)
			if err != nil {
				return nil, err
			}
			return sem.AcquireN(ctx, n, minute)
		}
		lease, err := permits(named, l, e.permits)
		require.NoError(t, err)
		if e.bids {
			waits(t, rdb, newLocker, func(waiter *locker.Client) { _, _ = permits(ctx, waiter, 2) })
			pace.Eventually(t, 20*time.Second, "the waiter bids", func() bool { return rdb.HExists(ctx, "k", ">").Val() })
		}
		return lease
	}
	if !e.waits {
		ctx = named
	}
	lease, err := l.Lock(ctx, "k", minute)
	require.NoError(t, err)
	if e.waits {
		waits(t, rdb, newLocker, func(waiter *locker.Client) { _, _ = waiter.Lock(named, "k", minute) })
		pace.Eventually(t, 20*time.Second, "the waiter is in the queue", func() bool { return rdb.Exists(ctx, "locker:queue:{k}").Val() == 1 })
	}
	return lease
}

// waits runs wait with a new Locker in a goroutine, until the test ends.
func waits(t *testing.T, rdb redis.UniversalClient, newLocker redisLocker, wait func(*locker.Client)) {
	t.Helper()
	waiter, err := newLocker(rdb)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait(waiter)
	}()
	t.Cleanup(func() {
		_ = waiter.Close()
		<-done
	})
}

// TestLayoutIsKept: what is stored is what docs/versioning.md promises to store.
func TestLayoutIsKept(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, name := range append(slices.Sorted(maps.Keys(redisLockers)), "redlock") {
		for _, e := range entries {
			if !e.of(name) {
				continue
			}
			lockers, nodes := onLayout(t, name)
			l, err := lockers[name](nodes[0])
			require.NoError(t, err)
			lease := e.take(t, nodes[0], l, lockers[name])
			text := stored(t, nodes[0])
			for _, node := range nodes[1:] {
				require.Equal(t, text, stored(t, node), "the nodes of %s differ", name)
			}
			fmt.Fprintf(&got, "%s, %s\n%s\n", name, e.what, text)
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
				fields = append(fields, withSigns("    "+field+" = "+value)) // signs first: random ids do not decide the order
			}
			slices.Sort(fields)
			lines = append(lines, fields...)
		case "zset":
			for _, z := range rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				lines = append(lines, fmt.Sprintf("    %s = %.0f", z.Member, z.Score))
			}
		default:
			t.Errorf("%s is a %s: describe its members here", key, kind)
		}
	}
	return withSigns(strings.Join(lines, "\n") + "\n")
}

// withSigns puts signs for ids, tokens and times.
func withSigns(text string) string {
	for _, of := range []struct{ pattern, sign string }{
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`\b\d{16}\b`, "TOKEN"},
		{`\b\d{13}\b`, "TIME"},
		{`= \d+ UUID:\d+ (\d+) TIME [01] (\d+) (\d+) `, "= NTH UUID:N $1 TIME BLOCKS $2 $3 "}, // in a queue
		{`> = UUID:\d+ (\d+) TIME TIME\b`, "> = UUID:N $1 SINCE HEARD"},                       // a bid
		{`= UUID:\d+ (\d+ \d+) TIME [01] `, "= UUID:N $1 HEARD BLOCKS "},                      // a place
		{`(?m)^    UUID = TOKEN$`, "    UUID = CAME"},                                         // a turn
	} {
		text = regexp.MustCompile(of.pattern).ReplaceAllString(text, of.sign)
	}
	return text
}

// TestOldLayoutIsRespected: locks that were stored by layout 1, byte by byte, keep out every strategy of this
// version, are reported by Inspect, stay as they are, and their tokens are exceeded.
func TestOldLayoutIsRespected(t *testing.T) {
	t.Parallel()
	for head, body := range oldEntries(t) {
		if strings.HasSuffix(head, " waits") || strings.HasSuffix(head, aBid) {
			continue // TestOldWaiterIsServed, TestOldBidIsRespected
		}
		t.Run(strings.ReplaceAll(head, " ", "-"), func(t *testing.T) {
			t.Parallel()
			strategy, _, _ := strings.Cut(head, ",")
			lockers, nodes := onLayout(t, strategy)
			for _, node := range nodes {
				restore(t, node, body)
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
				if strategy != "redlock" {
					sem, err := locker.NewSemaphore(l, "k", 2)
					require.NoError(t, err)
					_, err = sem.TryAcquire(t.Context())
					require.ErrorIs(t, err, locker.ErrNotAcquired, name)
				}
				holder, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err, name)
				require.True(t, holder.Held, name)
				require.Equal(t, before, holds(), "%s has changed it", name)
			}
			l, err := lockers[strings.Replace(strategy, "setnx", "blpop", 1)](nodes[0])
			require.NoError(t, err)
			defer l.Close()
			if strings.Contains(head, "permits") {
				permitsEnd(t, nodes[0], l)
			}
			for _, node := range nodes {
				require.NoError(t, node.Del(t.Context(), "k").Err()) // as its TTL would
			}
			lease, err := l.Lock(t.Context(), "k", locker.WithWait(20*time.Second))
			require.NoError(t, err)
			require.Greater(t, lease.Token(), oldToken)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

// permitsEnd ends the claims of old permits, which the next caller for permits then gets.
func permitsEnd(t *testing.T, rdb redis.UniversalClient, l *locker.Client) {
	t.Helper()
	claim := redis.Z{Member: oldID + ":1", Score: float64(time.Now().Add(-time.Second).UnixMilli())}
	require.NoError(t, rdb.ZAddArgs(t.Context(), "locker:permits:{k}", redis.ZAddArgs{XX: true, Members: []redis.Z{claim}}).Err())
	sem, err := locker.NewSemaphore(l, "k", 2)
	require.NoError(t, err)
	lease, err := sem.TryAcquire(t.Context())
	require.NoError(t, err)
	require.Greater(t, lease.Token(), oldToken)
	require.NoError(t, lease.Unlock(t.Context()))
}

const (
	oldID    = "0f0e0d0c-1111-4222-8333-444455556666"
	oldToken = int64(1_900_000_000_000_000) // ahead of the clock: only the counter makes greater ones
)

// oldEntries returns what the file has, by its titles.
func oldEntries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	all := map[string]string{}
	for _, e := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		head, body, _ := strings.Cut(e, "\n")
		all[head] = body
	}
	require.Len(t, all, 4*len(redisLockers)+3)
	return all
}

// restore stores what the layout describes, for a minute. A bid in it was heard of just now.
func restore(t *testing.T, rdb redis.UniversalClient, body string) {
	t.Helper()
	now := time.Now()
	ends, since := now.Add(time.Minute), now.Add(-time.Second)
	body = strings.NewReplacer("UUID:N", oldID+":7", "UUID", oldID, "NTH", "1", "BLOCKS", "1",
		"SINCE", fmt.Sprint(since.UnixMilli()), "HEARD", fmt.Sprint(now.UnixMilli()), "CAME", fmt.Sprint(since.UnixMicro()),
		"TOKEN", fmt.Sprint(oldToken), "TIME", fmt.Sprint(ends.UnixMilli())).Replace(body)
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
		field, count, _ := strings.Cut(value, " = ")
		switch what, _, _ := strings.Cut(kind, ","); what {
		case "hash":
			require.NoError(t, rdb.HSet(context.Background(), key, field, count).Err())
		case "zset":
			score, err := strconv.ParseFloat(count, 64)
			require.NoError(t, err)
			require.NoError(t, rdb.ZAdd(context.Background(), key, redis.Z{Member: field, Score: score}).Err())
		default:
			require.NoError(t, rdb.Set(context.Background(), key, value, 0).Err())
		}
	}
	for _, key := range all {
		require.NoError(t, rdb.PExpireAt(context.Background(), key, ends).Err())
	}
}
