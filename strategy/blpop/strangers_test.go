package blpop

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// ran has hand-overs have gone on for so long.
func ran(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	at := time.Now().Add(-d).UnixMilli()
	require.NoError(t, rdb.HSet(t.Context(), queueOfK, "run", at, "opened", at).Err())
}

// window is how long the opening lasts that has begun, 0 if none has.
func window(t *testing.T, rdb *redis.Client) time.Duration {
	t.Helper()
	var opened, until int64
	times := rdb.HMGet(t.Context(), queueOfK, "opened", "until").Val()
	if times[1] == nil {
		return 0
	}
	_, err := fmt.Sscan(fmt.Sprintln(times...), &opened, &until)
	require.NoError(t, err)
	return time.Duration(until-opened) * time.Millisecond
}

// Where no other strategy is known to wait, hand-overs go on without an opening for
// seconds; then there is a brief one.
func TestNoOpeningForNone(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	ran(t, rdb, 1500*time.Millisecond)
	require.NoError(t, holder.gives())
	require.True(t, waiting.wasGranted())
	require.False(t, holder.asks())
	ran(t, rdb, 3*time.Second)
	require.NoError(t, waiting.gives())
	require.Zero(t, rdb.Exists(t.Context(), "k").Val())
	require.Equal(t, 20*time.Millisecond, window(t, rdb))
	require.Equal(t, []string{holder.claim.ID}, holder.told(), "it is to look for the end")
	require.Eventually(t, holder.asks, 10*time.Second, time.Millisecond, "the opening ends")
}

// An opening is for others that wait: the queue holds back until it ends, which it also
// does when one of them was granted the lock, and then goes on in order.
func TestOpening(t *testing.T) {
	refused := func(t *testing.T, rdb *redis.Client, _ string) {
		t.Helper()
		l, err := setnx.New(rdb)
		require.NoError(t, err)
		defer l.Close()
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
	}
	subscribes := func(t *testing.T, rdb *redis.Client, channel string) {
		t.Helper()
		sub := rdb.Subscribe(t.Context(), channel)
		t.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		wait  func(t *testing.T, rdb *redis.Client, channel string)
		lasts time.Duration
	}{
		"for one that was refused": {refused, 100 * time.Millisecond},
		"for one that subscribes":  {subscribes, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := start(t)
			holder := hold(t, rdb)
			first, second, third := takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb)
			channel, _ := first.Channels.Of("k")
			c.wait(t, rdb, channel)
			ran(t, rdb, 100*time.Millisecond)
			require.NoError(t, holder.gives())
			require.True(t, first.wasGranted(), "not yet")
			require.Zero(t, window(t, rdb))
			ran(t, rdb, 300*time.Millisecond) // the mark is kept
			require.NoError(t, first.gives())
			require.Equal(t, c.lasts, window(t, rdb))
			require.Len(t, second.told(), 1, "it is to look for the end")
			require.Len(t, third.told(), 1, "it, too: the first may be dead")
			goesOn := func() {
				require.NoError(t, rdb.HSet(t.Context(), queueOfK, "until", time.Now().Add(95*time.Millisecond).UnixMilli()).Err())
			}
			goesOn()
			a := second.answer()
			require.False(t, a.Granted)
			require.LessOrEqual(t, a.Remaining, 11*time.Millisecond, "it may end sooner")
			goesOn()
			require.False(t, newPlace(t, rdb).tries())
			require.Zero(t, rdb.Exists(t.Context(), "k").Val())

			l, err := setnx.New(rdb)
			require.NoError(t, err)
			defer l.Close()
			stranger, err := l.TryLock(t.Context(), "k")
			require.NoError(t, err)
			require.False(t, third.asks())
			require.NoError(t, stranger.Unlock(t.Context()))
			goesOn()
			require.False(t, third.asks(), "another one was before it")
			require.True(t, second.wasGranted())
		})
	}
}

// A server's clock that goes back does not make an opening longer.
func TestOpeningAndAClockThatGoesBack(t *testing.T) {
	rdb := start(t)
	hold(t, rdb)
	waiting := takePlace(t, rdb)
	future := time.Now().Add(time.Hour).UnixMilli()
	require.NoError(t, rdb.HSet(t.Context(), queueOfK, "until", future, "opened", future, "run", future, "granted", future).Err())
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	require.True(t, waiting.asks())
}

// While a string has the lock, waiters poll: they leave the queue, and write nothing.
func TestWaitingForAString(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	require.NoError(t, rdb.Set(t.Context(), "k", "another's", time.Minute).Err())
	require.ErrorIs(t, holder.gives(), locker.ErrLost)
	require.True(t, waiting.answer().NoWakeUp)
	written := func() string {
		return regexp.MustCompile(`rdb_changes_since_last_save:\d+`).FindString(rdb.Info(t.Context(), "persistence").Val())
	}
	before := written()
	for range 10 {
		require.True(t, waiting.answer().NoWakeUp)
	}
	require.Equal(t, before, written())

	require.NoError(t, rdb.Del(t.Context(), "k").Err())
	holder = hold(t, rdb)
	require.NoError(t, holder.gives())
	require.Zero(t, rdb.Exists(t.Context(), "k").Val(), "it is granted to none")
	holder = hold(t, rdb)
	require.False(t, waiting.asks())
	require.NoError(t, holder.gives())
	require.True(t, waiting.wasGranted())
}

// A large hash of the application's is not looked through by those who wait.
func TestWaitingForALargeHash(t *testing.T) {
	rdb := start(t)
	for i := range 100 {
		var fields []any
		for j := range 100 {
			fields = append(fields, fmt.Sprint(i, " ", j), j)
		}
		require.NoError(t, rdb.HSet(t.Context(), "k", fields...).Err())
	}
	for _, owner := range []string{"", "5 5"} {
		waiting := newPlace(t, rdb)
		waiting.owner = owner
		a := waiting.answer()
		require.False(t, a.Granted)
		require.True(t, a.NoWakeUp)
		require.Empty(t, a.Owner)
	}
	stats := rdb.Info(t.Context(), "commandstats").Val()
	for _, cmd := range []string{"hgetall", "hkeys", "hscan", "hvals"} {
		require.NotContains(t, stats, "cmdstat_"+cmd+":")
	}
}
