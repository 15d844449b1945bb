package hashreentrant_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const permitsKey = "locker:permits:{k}"

func takePermits(t *testing.T, d driver.Driver, id string, ttl time.Duration, n, limit int) driver.Answer {
	t.Helper()
	c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Permits: n, Limit: limit}
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
	require.NoError(t, err)
	return a
}

func out(t *testing.T, d driver.Driver) int {
	t.Helper()
	n, _, err := d.(driver.PermitKeeper).Permits(t.Context(), "k")
	require.NoError(t, err)
	return n
}

func newKeeper(t *testing.T) (driver.Driver, *redis.Client) {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	d, err := hashreentrant.NewDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d, rdb
}

func idOf(n int) string { return fmt.Sprintf("00000000-0000-8000-8000-000000000000:%d", n) }

// The keys last as long as the claims; with the last claim they go.
func TestPermitsLastAsClaims(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, idOf(1), time.Hour, 1, 9).Granted)
	require.True(t, takePermits(t, d, idOf(2), time.Minute, 1, 9).Granted)
	for _, key := range []string{"k", permitsKey} {
		require.InDelta(t, time.Hour, rdb.PTTL(t.Context(), key).Val(), float64(time.Second), key)
	}
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(1), Limit: 9, Permits: 1}))
	for _, key := range []string{"k", permitsKey} {
		require.InDelta(t, time.Minute, rdb.PTTL(t.Context(), key).Val(), float64(time.Second), key)
	}
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(2), Limit: 9, Permits: 1}))
	require.Zero(t, rdb.Exists(t.Context(), "k", permitsKey).Val())
}

// A set of ends that was lost is made again, and claims of a hash that was lost are.
func TestPermitsWithoutTheirKeys(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, idOf(1), time.Second, 2, 3).Granted)
	require.NoError(t, rdb.Del(t.Context(), permitsKey).Err())
	require.False(t, takePermits(t, d, idOf(2), time.Minute, 2, 3).Granted, "the claim has not ended")
	require.EqualValues(t, 1, rdb.ZCard(t.Context(), permitsKey).Val())
	require.Eventually(t, func() bool { return takePermits(t, d, idOf(2), time.Minute, 2, 3).Granted }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), "k").Err())
	require.ErrorIs(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(2), Limit: 3, Permits: 2}), driver.ErrLost)
	require.Zero(t, out(t, d))
	require.True(t, takePermits(t, d, idOf(3), time.Minute, 3, 3).Granted)
	require.EqualValues(t, 1, rdb.ZCard(t.Context(), permitsKey).Val(), "what was there before is gone")
}

// Where the set of ends was lost, a release does not end the claims that have no end there.
func TestReleaseWithoutTheEnds(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, idOf(1), time.Hour, 1, 9).Granted)
	require.NoError(t, rdb.Del(t.Context(), permitsKey).Err())
	require.True(t, takePermits(t, d, idOf(2), time.Second, 1, 9).Granted)
	require.True(t, takePermits(t, d, idOf(3), 2*time.Hour, 1, 9).Granted)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(3), Limit: 9, Permits: 1}))
	require.Greater(t, rdb.PTTL(t.Context(), "k").Val(), time.Minute, "one that has an hour is out")
}

// A server that is out of memory grants no permits, and takes renewals and releases.
func TestPermitsWithoutMemory(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	held := driver.Claim{Key: "k", ID: idOf(1), Owner: idOf(1), TTL: time.Minute, Permits: 1, Limit: 9}
	require.True(t, takePermits(t, d, held.ID, held.TTL, 1, 9).Granted)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, key := range []string{"k", "free"} {
		for _, fencing := range []bool{true, false} {
			c := driver.Claim{Key: key, ID: idOf(2), Owner: idOf(2), TTL: time.Minute, Permits: 1, Limit: 9}
			_, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: fencing})
			require.ErrorContains(t, err, "OOM", key)
			require.True(t, driver.IsPermanent(err))
		}
	}
	d.Renew(t.Context(), []driver.Claim{held}, func(_ int, err error) { require.NoError(t, err) })
	require.NoError(t, d.Release(t.Context(), held))
}

// The bid of a claim ends with its Release, and no other claim's does.
func TestBidEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	other := func(n int) string { return strings.Replace(idOf(n), "0", "1", 1) }
	require.True(t, takePermits(t, d, other(1), time.Second, 1, 4).Granted)
	asks := func(n int, waited time.Duration) driver.Claim {
		c := driver.Claim{Key: "k", ID: idOf(n), Owner: idOf(n), TTL: time.Minute, Permits: 4, Limit: 4}
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Waits: true, Waited: waited})
		require.NoError(t, err)
		require.False(t, a.Granted)
		require.True(t, a.Bids)
		return c
	}
	before, now := asks(1, time.Second), asks(2, 2*time.Second)
	sub := rdb.Subscribe(t.Context(), "redisson_lock__channel:{k}")
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, d.Release(t.Context(), before), driver.ErrLost)
	require.False(t, takePermits(t, d, other(2), time.Minute, 1, 4).Granted, "permits are kept free for the later attempt")
	require.ErrorIs(t, d.Release(t.Context(), now), driver.ErrLost)
	_, err = sub.ReceiveTimeout(t.Context(), 5*time.Second)
	require.NoError(t, err, "those that it kept out are woken")
	require.True(t, takePermits(t, d, other(2), time.Minute, 1, 4).Granted)
	for n := 1; n <= 2; n++ {
		require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: other(n), Limit: 4, Permits: 1}))
	}
	require.True(t, takePermits(t, d, other(3), time.Second, 1, 4).Granted)
	last := asks(3, time.Second)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: other(3), Limit: 4, Permits: 1}))
	require.EqualValues(t, 1, rdb.Exists(t.Context(), "k").Val(), "who bids is next")
	require.ErrorIs(t, d.Release(t.Context(), last), driver.ErrLost)
	require.Zero(t, rdb.Exists(t.Context(), "k", permitsKey).Val())
}

// Another program's keys are left alone.
func TestPermitsOfForeignKeys(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	ctx := t.Context()
	c := driver.Claim{Key: "k", ID: idOf(1), Owner: idOf(1), TTL: time.Minute, Permits: 1, Limit: 2}
	for name, plant := range map[string]func() error{
		"a string":          func() error { return rdb.Set(ctx, "k", "x", 0).Err() },
		"Redisson's lock":   func() error { return rdb.HSet(ctx, "k", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1).Err() },
		"a hash":            func() error { return rdb.HSet(ctx, "k", "name", "permits 3 1").Err() },
		"a hash, no number": func() error { return rdb.HSet(ctx, "k", "", "permits 3 x").Err() },
	} {
		require.NoError(t, plant(), name)
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
		require.NoError(t, err, name)
		require.False(t, a.Granted, name)
		require.Equal(t, name == "a string", a.NoWakeUp, name)
		require.ErrorIs(t, d.Release(ctx, c), driver.ErrLost, name)
		_, _, err = d.(driver.PermitKeeper).Permits(ctx, "k")
		require.ErrorIs(t, err, driver.ErrConflict, name)
		require.EqualValues(t, 1, rdb.Del(ctx, "k").Val(), name)
	}
	require.NoError(t, rdb.RPush(ctx, "k", "x").Err())
	_, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
	require.ErrorIs(t, err, driver.ErrConflict)
}

// Inspect shows how many are out, and Permits who has them; ForceUnlock takes those of one claim.
func TestInspectPermits(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l, err := hashreentrant.New(rdb, locker.WithPrefix("app:"))
	require.NoError(t, err)
	defer l.Close()
	s, err := locker.NewSemaphore(l, "k", 200)
	require.NoError(t, err)
	ctx := locker.ContextWithOwner(t.Context(), "ann lee")
	want := map[int64]int{}
	for i := range 150 {
		lease, err := s.AcquireN(ctx, 1+i%2%2)
		require.NoError(t, err)
		want[lease.Token()] = 1 + i%2
		if len(want) == 130 {
			break
		}
	}
	h, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, h.Held)
	require.Equal(t, []any{195, 200, "", "permits"}, []any{h.Permits, h.Limit, h.ID, h.Strategy})
	require.ErrorIs(t, l.ForceUnlock(t.Context(), h), locker.ErrConflict)
	got := map[int64]int{}
	var one locker.Holder
	for h, err := range l.Permits(t.Context(), "k") {
		require.NoError(t, err)
		require.Equal(t, []any{"k", "ann lee", 200}, []any{h.Key, h.Owner, h.Limit})
		got[h.Token] = h.Permits
		one = h
	}
	require.Equal(t, want, got)
	require.NoError(t, l.ForceUnlock(t.Context(), one))
	require.ErrorIs(t, l.ForceUnlock(t.Context(), one), locker.ErrNotHeld)
	free, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5+one.Permits, free)
}

// With 100,000 permits out no command looks at all of them: not one about permits, and not the late release of a lock.
func TestPermitsCost(t *testing.T) {
	d, rdb := newKeeper(t)
	ctx := t.Context()
	const many, times = 100_000, 200
	limit := many + 10
	cost := func() (perCall time.Duration) {
		require.NoError(t, rdb.ConfigResetStat(ctx).Err())
		for i := range times {
			id := idOf(-1 - i)
			require.True(t, takePermits(t, d, id, time.Minute, 1, limit).Granted)
			c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute, Permits: 1, Limit: limit}
			d.Renew(ctx, []driver.Claim{c}, func(_ int, err error) { require.NoError(t, err) })
			require.NoError(t, d.Release(ctx, c))
			late := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
			if err := d.Release(ctx, late); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%v, want ErrLost", err)
			}
			require.False(t, takePermits(t, d, id, time.Minute, limit, limit).Granted)
			_ = out(t, d)
			_, err := d.(driver.Inspector).Inspect(ctx, "k")
			require.NoError(t, err)
		}
		var calls, micros int64
		for line := range strings.Lines(rdb.Info(ctx, "commandstats").Val()) {
			_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,usec=%d", &calls, &micros)
		}
		require.GreaterOrEqual(t, calls, int64(7*times))
		return time.Duration(micros) * time.Microsecond / time.Duration(calls)
	}
	require.True(t, takePermits(t, d, idOf(0), time.Hour, 1, limit).Granted)
	few := cost()
	pipe := rdb.Pipeline()
	for i := range many {
		if i%1000 == 999 {
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		pipe.HSet(ctx, "k", idOf(i+1), fmt.Sprintf("1 %d", i+1))
		pipe.ZAdd(ctx, permitsKey, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: idOf(i + 1)})
	}
	pipe.HSet(ctx, "k", "", fmt.Sprintf("permits %d %d", limit, many+1))
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	most := cost()
	t.Logf("a script takes %v with 1 permit out, and %v with %d", few, most, many)
	require.Less(t, most, 20*few+time.Millisecond, "HGETALL takes tens of milliseconds")
}

// Permits that have ended and were not swept yet are neither renewed nor given back as if they had not.
func TestEndedPermitsStayEnded(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, idOf(1), time.Hour, 1, 9).Granted)
	require.True(t, takePermits(t, d, idOf(2), time.Minute, 1, 9).Granted)
	require.NoError(t, rdb.ZAdd(t.Context(), permitsKey, redis.Z{Score: 1, Member: idOf(2)}).Err()) // it ended long ago
	ended := driver.Claim{Key: "k", ID: idOf(2), TTL: time.Minute, Limit: 9, Permits: 1}
	var renewed error
	d.Renew(t.Context(), []driver.Claim{ended}, func(_ int, err error) { renewed = err })
	require.ErrorIs(t, renewed, driver.ErrLost)
	require.ErrorIs(t, d.Release(t.Context(), ended), driver.ErrLost)
	require.Equal(t, 1, out(t, d))
}
