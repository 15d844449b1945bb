package strategies

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestOldWaiterIsServed: a process of layout 1 that waits in blpop's queue is granted the lock by the release of this
// version, and finds the grant in its inbox.
func TestOldWaiterIsServed(t *testing.T) {
	t.Parallel()
	_, body, found := strings.Cut(oldEntries(t)["blpop, a lock for which the owner worker waits"], "\n  locker:queue:{k}: ")
	require.True(t, found)
	rdb := redistest.Start(t).Client(t)
	l, err := blpop.New(rdb)
	require.NoError(t, err)
	defer l.Close()
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	restore(t, rdb, "  locker:queue:{k}: "+body)
	holder, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []string{"worker"}, holder.Queue)
	require.NoError(t, lease.Unlock(t.Context()))

	claim := oldID + ":7"
	holder, err = l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []any{claim, "worker"}, []any{holder.ID, holder.Owner})
	require.Greater(t, holder.Token, lease.Token())
	words := strings.Fields(rdb.LIndex(t.Context(), "locker:inbox:"+oldID, 0).Val())
	require.Len(t, words, 3, "the grant: claim, first token, how many")
	require.Equal(t, claim, words[0])
	first, err := strconv.ParseInt(words[1], 10, 64)
	require.NoError(t, err)
	require.Greater(t, first, lease.Token())
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
}

// aBid ends the titles of the entries in which one of two permits is free, and a Locker waits for both.
const aBid = ", and a bid for two"

// TestOldBidIsRespected: the bid of a process of layout 1 for two permits keeps a free permit from every strategy of this
// version. A bid counts for two seconds, which a busy machine may take. So the bid is stored again before each try.
func TestOldBidIsRespected(t *testing.T) {
	t.Parallel()
	bids := 0
	for head, body := range oldEntries(t) {
		if !strings.HasSuffix(head, aBid) {
			continue
		}
		bids++
		for name, newLocker := range redisLockers {
			old, _, _ := strings.Cut(head, ",")
			t.Run(old+"/"+name, func(t *testing.T) {
				t.Parallel()
				rdb, ctx := redistest.Start(t).Client(t), t.Context()
				l, sem := twoPermits(t, rdb, newLocker)
				pace.Eventually(t, 20*time.Second, "the bid keeps the permit", func() bool {
					restore(t, rdb, body)
					return refused(t, sem)
				})
				require.NoError(t, rdb.HDel(ctx, "k", ">").Err())
				require.NoError(t, rdb.Del(ctx, "locker:turns:{k}", "locker:places:{k}").Err())
				lease, err := sem.TryAcquire(ctx)
				require.NoError(t, err, "without the bid the permit is free")
				require.Greater(t, lease.Token(), oldToken)
				require.NoError(t, lease.Unlock(ctx))
				holder, err := l.Inspect(ctx, "k")
				require.NoError(t, err)
				require.Equal(t, []int{1, 2}, []int{holder.Permits, holder.Limit}, "the permit of worker is out")
			})
		}
	}
	require.Len(t, redisLockers, bids, "a bid of each strategy")
}

// TestOldLineIsServed: a process of layout 1 that waits in blpop's line for two permits keeps a free permit from this
// version, and is woken by the release of this version. A place counts for two seconds, as a bid does.
func TestOldLineIsServed(t *testing.T) {
	t.Parallel()
	const places = "  locker:places:{k}: "
	_, line, found := strings.Cut(oldEntries(t)["blpop, a permit of the owner worker"+aBid], "\n"+places)
	require.True(t, found)
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	_, sem := twoPermits(t, rdb, blpop.New)
	inbox := "locker:inbox:" + oldID
	pace.Eventually(t, 20*time.Second, "the line is respected, and woken", func() bool {
		require.NoError(t, rdb.Del(ctx, "k", "locker:permits:{k}", "locker:turns:{k}", "locker:places:{k}", inbox).Err())
		lease, err := sem.TryAcquire(ctx)
		require.NoError(t, err)
		require.False(t, refused(t, sem), "without the line the second permit is free")
		restore(t, rdb, places+line)
		kept := refused(t, sem)
		require.NoError(t, lease.Unlock(ctx))
		return kept && rdb.LIndex(ctx, inbox, 0).Val() == oldID+":7"
	})
}

// twoPermits returns a Locker, and its semaphore of two permits of k.
func twoPermits(t *testing.T, rdb redis.UniversalClient, newLocker redisLocker) (*locker.Client, *locker.Semaphore) {
	t.Helper()
	l, err := newLocker(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	sem, err := locker.NewSemaphore(l, "k", 2)
	require.NoError(t, err)
	return l, sem
}

// refused reports whether a permit is refused. A permit that is granted is given back.
func refused(t *testing.T, sem *locker.Semaphore) bool {
	t.Helper()
	lease, err := sem.TryAcquire(t.Context())
	if err == nil {
		require.NoError(t, lease.Unlock(t.Context()))
		return false
	}
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	return true
}
