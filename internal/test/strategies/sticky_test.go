package strategies

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// keep has l keep key: until it listens, it does not.
func keep(t *testing.T, l, observer locker.Locker, key string) {
	t.Helper()
	for range 1000 {
		lease, err := l.Lock(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		if h, err := client(t, observer).Inspect(t.Context(), key); err == nil && h.Held {
			return
		}
		time.Sleep(time.Millisecond) // that a Locker listens is no event
	}
	require.Fail(t, "the key is never kept")
}

// The strategies that exclude one another on one Redis ask one another for locks that nobody uses.
func TestStickyGivesWay(t *testing.T) {
	t.Parallel()
	for server, start := range map[string]func(testing.TB) redis.UniversalClient{
		"single":  func(tb testing.TB) redis.UniversalClient { return redistest.Start(tb).Client(tb) },
		"cluster": func(tb testing.TB) redis.UniversalClient { return redistest.StartCluster(tb, 3, 0).Client(tb) },
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			for name, newHolder := range onOneRedis {
				for asker, newAsker := range onOneRedis {
					t.Run(name+" for "+asker, func(t *testing.T) {
						// Each keeps for a second at most: what takes less was asked for.
						holder, err := newHolder(rdb, locker.WithSticky(time.Second))
						require.NoError(t, err)
						defer func() { require.NoError(t, holder.Close()) }()
						other, err := newAsker(rdb)
						require.NoError(t, err)
						defer func() { require.NoError(t, other.Close()) }()
						givesWay(t, holder, other)
					})
				}
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		s := memory.NewStore()
		holder, err := s.New(locker.WithSticky(time.Second))
		require.NoError(t, err)
		other, err := s.New()
		require.NoError(t, err)
		givesWay(t, holder, other)
		require.NoError(t, holder.Close())
		require.NoError(t, other.Close())
	})
}

// givesWay wants the lock of others at once, of several keys by Lock and TryLock. A holder that is not asked keeps its lock for a
// second of real time, or half of one; one that is asked is faster in one of five tries, however busy the machine is.
func givesWay(t *testing.T, holder, other locker.Locker) {
	t.Helper()
	for i, key := range []string{"k", "{a}b", "}x", "y"} {
		take := other.Lock
		if i%2 == 1 {
			take = other.TryLock
		}
		fastest := time.Hour
		for n := 0; n < 5 && fastest > 250*time.Millisecond; n++ {
			key := fmt.Sprint(key, t.Name(), n) // none cools
			keep(t, holder, other, key)
			start := time.Now()
			lease, err := take(t.Context(), key)
			for errors.Is(err, locker.ErrNotAcquired) { // the holder is slow to answer
				lease, err = take(t.Context(), key)
			}
			require.NoError(t, err, "key %q", key)
			fastest = min(fastest, time.Since(start))
			require.NoError(t, lease.Unlock(t.Context()))
		}
		require.Less(t, fastest, 250*time.Millisecond, "key %q: the holder was not asked", key)
	}
}

// Pairs of a kept lock send next to no commands.
func TestStickyCommands(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			l, err := newLocker(rdb, locker.WithSticky(time.Second))
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			keep(t, l, l, "k")
			before, start, last := scriptsRun(t, rdb), time.Now(), int64(0)
			const n = 5000
			for range n {
				lease, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.Greater(t, lease.Token(), last)
				last = lease.Token()
				require.NoError(t, lease.Unlock(t.Context()))
			}
			// A grant and a release for 256 pairs, and for each second; while the clock is behind, for 32.
			most := 2*(n/32+int(time.Since(start)/time.Second)) + 10
			require.LessOrEqual(t, scriptsRun(t, rdb)-before, most)
			h, err := client(t, l).Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Less(t, h.Token, time.Now().Add(time.Second).UnixMicro(), "tokens do not run ahead of the clock")
		})
	}
}

// scriptsRun returns how many scripts the server has run.
func scriptsRun(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			count, _, _ := strings.Cut(rest, ",")
			n, err = strconv.Atoi(count)
			require.NoError(t, err)
		}
	}
	return n
}

// Lockers of all strategies, sticky and not, use a few keys by all kinds of calls: never are two inside, and
// tokens grow.
func TestStickyExcludes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	var lockers []locker.Locker
	for _, newLocker := range onOneRedis {
		for _, opts := range [][]locker.Option{{locker.WithSticky(time.Second)}, {locker.WithSticky(5 * time.Millisecond)}, nil} {
			l, err := newLocker(rdb, opts...)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			lockers = append(lockers, l)
		}
	}
	var keys [4]struct {
		inside atomic.Int32
		last   int64
	}
	var use sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for i, l := range lockers {
		use.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				at := 0
				if n%20 == 0 {
					at = i % 4 // another one's
				} else if i < 3 {
					at = i + 1
				}
				lock, k := l.Lock, &keys[at]
				if n%3 == 0 {
					lock = l.TryLock
				}
				lease, err := lock(t.Context(), "k"+strconv.Itoa(at))
				if err != nil {
					continue
				}
				if k.inside.Add(1) != 1 || lease.Token() <= k.last {
					t.Errorf("key %d: another is inside, or token %d follows %d", at, lease.Token(), k.last)
				}
				k.last = lease.Token()
				k.inside.Add(-1)
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	use.Wait()
}

// Another library waits until nobody has used the lock for idle.
func TestStickyAndRedsync(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const idle = 300 * time.Millisecond
	l, err := onOneRedis["setnx"](rdb, locker.WithSticky(idle))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	keep(t, l, l, "k")
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex("k", redsync.WithTries(100), redsync.WithRetryDelay(10*time.Millisecond))
	require.NoError(t, mutex.LockContext(t.Context()), "it is given up by itself")
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	_, err = mutex.UnlockContext(t.Context())
	require.NoError(t, err)
}

func TestStickyIsNotForRedlock(t *testing.T) {
	t.Parallel()
	var nodes []redis.UniversalClient
	for range 3 {
		nodes = append(nodes, redistest.Start(t).Client(t))
	}
	_, err := redlock.New(nodes, locker.WithSticky(time.Second))
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "redlock")
}
