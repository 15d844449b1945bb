package strategies

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestInspectRecognizes: whatever strategy an operator's Locker has, it recognises the locks
// of the others, and those of other libraries.
func TestInspectRecognizes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	const javas = "0f0e0d0c-1111-4222-8333-444455556666:7"
	named := locker.ContextWithOwner(t.Context(), "the owner")
	lock := func(newLocker func(redis.UniversalClient, ...locker.Option) (*locker.Client, error), ctx context.Context, key string) string {
		l, err := newLocker(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		lease, err := l.Lock(ctx, key, locker.WithTTL(time.Minute))
		require.NoError(t, err)
		return lease.Owner()
	}
	set := func(kind string, key string, args ...any) {
		require.NoError(t, rdb.Do(t.Context(), append([]any{kind, key}, args...)...).Err())
	}
	want := map[string]locker.Holder{
		"setnx":       {Strategy: "setnx", Owner: lock(setnx.New, t.Context(), "setnx")},
		"hash":        {Strategy: "hashreentrant", Owner: lock(hashreentrant.New, t.Context(), "hash"), Holds: 1},
		"hash named":  {Strategy: "hashreentrant", Owner: lock(hashreentrant.New, named, "hash named"), Holds: 1},
		"blpop":       {Strategy: "blpop", Owner: lock(blpop.New, t.Context(), "blpop"), Holds: 1},
		"blpop named": {Strategy: "blpop", Owner: lock(blpop.New, named, "blpop named"), Holds: 1},
		"redisson":    {Strategy: "redisson", Owner: javas, Holds: 3},
		"plain":       {Owner: "me"},
		"for ever":    {Owner: "x"},
		"data":        {},
		"counts":      {},
		"long":        {},
	}
	set("hset", "redisson", javas, 3)
	require.NoError(t, rdb.PExpire(t.Context(), "redisson", time.Minute).Err())
	set("set", "plain", "me", "nx", "px", 60_000)
	set("set", "for ever", "x")
	set("hset", "data", "x", "y")
	set("hset", "counts", "x", 1, "y", 2)
	set("set", "long", string(make([]byte, 1<<20)))

	for _, newLocker := range []func(redis.UniversalClient, ...locker.Option) (*locker.Client, error){setnx.New, hashreentrant.New, blpop.New} {
		l, err := newLocker(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		a := l
		found := 0
		for _, err := range a.Holders(t.Context(), "*") {
			require.NoError(t, err)
			found++
		}
		require.Equal(t, len(want), found)
		looksAs(t, a, want)
	}
	operatorEnds(t, rdb, want)

}

// looksAs compares what a Locker finds with what is there.
func looksAs(t *testing.T, a *locker.Client, want map[string]locker.Holder) {
	t.Helper()
	for key, w := range want {
		h, err := a.Inspect(t.Context(), key)
		require.NoError(t, err, key)
		require.True(t, h.Held, key)
		require.Equal(t, []any{w.Strategy, w.Owner, w.Holds}, []any{h.Strategy, h.Owner, h.Holds}, key)
		if key == "for ever" || key == "data" || key == "counts" || key == "long" {
			require.Negative(t, h.Remaining)
		} else {
			require.InDelta(t, time.Minute, h.Remaining, float64(30*time.Second), key)
		}
		if ours := w.Strategy != "" && key != "redisson"; ours {
			require.Positive(t, h.Token, key)
			require.WithinDuration(t, time.Now(), h.Since, 30*time.Second, key)
		} else {
			require.Zero(t, h.Token)
			require.Zero(t, h.Since)
		}
		if w.Owner == "" {
			require.ErrorIs(t, a.ForceUnlock(t.Context(), h), locker.ErrConflict)
		}
	}
}

// operatorEnds ends all locks beside things that are none, which stay.
func operatorEnds(t *testing.T, rdb *redis.Client, want map[string]locker.Holder) {
	t.Helper()
	require.NoError(t, rdb.Set(t.Context(), "not UTF-8\xff", "x", 0).Err())
	require.NoError(t, rdb.RPush(t.Context(), "locker:fence:{plain}", "x").Err())
	require.NoError(t, rdb.Set(t.Context(), "locker:queue:{for ever}", "x", 0).Err())
	operator, err := blpop.New(rdb)
	require.NoError(t, err)
	defer operator.Close()
	listed := 0
	for _, err := range operator.Holders(t.Context(), "*") {
		require.NoError(t, err)
		listed++
	}
	require.Equal(t, len(want), listed, "others' things are no hindrance")
	for key, w := range want {
		if w.Owner != "" {
			h, err := operator.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, operator.ForceUnlock(t.Context(), h), key)
		}
	}
	keys, err := rdb.Keys(t.Context(), "[^l]*").Result() // except locker:fence:*, and "long"
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"data", "counts", "not UTF-8\xff"}, keys)
}

// TestInspectTellsTheQueue: who waits for a blpop lock, in turn.
func TestInspectTellsTheQueue(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	newLocker := func(job string) locker.Locker {
		l, err := blpop.New(rdb, locker.WithMetadata("job", job))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	holder := newLocker("holder")
	lease, err := holder.Lock(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const odd = "an owner\nof two lines"
	for i, job := range []string{"first", "second", "third", odd} {
		l, ctx := newLocker(job), ctx
		if job == odd {
			ctx = locker.ContextWithOwner(ctx, odd)
		}
		go func() { _, _ = l.Lock(ctx, "k") }()
		pace.Eventually(t, 30*time.Second, "one more waits", func() bool {
			h, err := holder.(*locker.Client).Inspect(t.Context(), "k")
			require.NoError(t, err)
			return h.Waiting == i+1
		})
	}
	h, err := holder.(*locker.Client).Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "holder", h.Metadata["job"])
	require.Equal(t, lease.Owner(), h.Owner)
	require.Len(t, h.Queue, 4)
	require.Equal(t, odd, h.Queue[3])
	for i, job := range []string{"first", "second", "third"} {
		require.Contains(t, h.Queue[i], "job="+job)
	}
}

// TestInspectCountsSubscribers: hashreentrant's waiters are those that listen.
func TestInspectCountsSubscribers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	open := func() locker.Locker {
		l, err := hashreentrant.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	holder := open()
	_, err := holder.Lock(t.Context(), "k")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 3 {
		l := open()
		go func() { _, _ = l.Lock(ctx, "k") }()
		pace.Eventually(t, 30*time.Second, "one more waits", func() bool {
			h, err := holder.(*locker.Client).Inspect(t.Context(), "k")
			require.NoError(t, err)
			return h.Waiting == n+1
		})
	}
}
