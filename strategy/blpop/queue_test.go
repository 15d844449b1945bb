package blpop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A release grants the lock to the first that waits, for a short time, with a greater
// token; and so on.
func TestReleaseGrants(t *testing.T) {
	rdb := start(t)
	holder := hold(t, rdb)
	waiting := []*place{takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb)}
	waiting[1].ttl = 500 * time.Millisecond
	require.False(t, waiting[1].asks(), "it says what its TTL is")
	for _, next := range waiting {
		require.NoError(t, holder.gives())
		left := rdb.PTTL(t.Context(), "k").Val()
		require.True(t, next.wasGranted())
		require.Greater(t, next.token, holder.token)
		require.Positive(t, left)
		require.LessOrEqual(t, left, min(shortGrant, next.ttl))
		require.False(t, newPlace(t, rdb).tries(), "no other gets in between")
		require.ErrorIs(t, holder.gives(), locker.ErrLost, "a release that is sent twice")
		require.True(t, next.holds())
		next.ttl = time.Minute
		holder = next
	}
}

// The order is that of tickets, whatever the server's clock does.
func TestPlacesAndAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithSettableClock())
	rdb := srv.Client(t)
	holder, first := hold(t, rdb), takePlace(t, rdb)
	srv.SetClock(t, -time.Hour)
	second := takePlace(t, rdb)
	require.False(t, first.asks())
	srv.SetClock(t, -2*time.Hour)
	third := takePlace(t, rdb)
	for _, next := range []*place{first, second, third} {
		require.NoError(t, holder.gives())
		require.True(t, next.wasGranted())
		holder = next
	}
}

// A push that is lost costs a look: the next attempt is granted the lock.
func TestPushLost(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	require.NoError(t, holder.gives())
	require.Len(t, waiting.told(), 1)
	require.True(t, waiting.asks())
	require.True(t, waiting.holds())
	require.Greater(t, rdb.PTTL(t.Context(), "k").Val(), shortGrant, "for the whole TTL")
	require.True(t, waiting.sends().Granted, "sent twice")
	require.NoError(t, waiting.gives())
	require.Zero(t, rdb.Exists(t.Context(), "k").Val())
}

// An attempt by a caller with another owner takes over what was granted to the process.
func TestGrantToAnotherOwner(t *testing.T) {
	rdb := start(t)
	for _, owners := range [][2]string{{"", "ann"}, {"ann", ""}, {"ann", "bob"}, {"ann", "ann"}} {
		holder, waiting := hold(t, rdb), newPlace(t, rdb)
		waiting.owner = owners[0]
		require.False(t, waiting.asks())
		require.NoError(t, holder.gives())
		waiting.owner = owners[1]
		require.True(t, waiting.asks())
		fields := 2 // the claim, and the one without a name
		if owners[1] != "" {
			fields = 3
			require.Equal(t, "1", rdb.HGet(t.Context(), "k", owners[1]).Val())
		}
		require.EqualValues(t, fields, rdb.HLen(t.Context(), "k").Val(), "the hold of %q, then %q", owners[0], owners[1])
		require.NoError(t, waiting.gives())
		require.Zero(t, rdb.Exists(t.Context(), "k").Val())
	}
}

// A named owner is granted a hold of its own, that others of the name join.
func TestGrantToANamedOwner(t *testing.T) {
	rdb := start(t)
	holder, ann := hold(t, rdb), newPlace(t, rdb)
	ann.owner = " ann\n 1 2\x00"
	require.False(t, ann.asks())
	require.NoError(t, holder.gives())
	require.True(t, ann.wasGranted())
	joins := newPlace(t, rdb)
	joins.owner = ann.owner
	a := joins.answer()
	require.True(t, a.Granted)
	require.Equal(t, ann.token, a.Token)
	require.NoError(t, ann.SetHolds(t.Context(), ann.claim, 3))
	require.Equal(t, "4", rdb.HGet(t.Context(), "k", ann.owner).Val())
	require.NoError(t, ann.gives())
	require.False(t, newPlace(t, rdb).tries())
	require.NoError(t, joins.gives())
	require.Zero(t, rdb.Exists(t.Context(), "k").Val())
}

// A process that gives up before it is granted the lock leaves the queue; after that,
// it passes the lock on; and one that is given up late, when the process waits with a
// later claim, changes nothing.
func TestGivingUp(t *testing.T) {
	rdb := start(t)
	holder := hold(t, rdb)
	before, late, after, next := takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb)
	for range 2 {
		require.ErrorIs(t, before.giveUp(t.Context(), before.claim), locker.ErrLost)
	}
	earlier := late.claim
	require.False(t, late.asks())
	require.ErrorIs(t, late.giveUp(t.Context(), earlier), locker.ErrLost)

	require.NoError(t, holder.gives())
	require.Empty(t, before.told())
	require.True(t, late.wasGranted())
	require.NoError(t, late.gives())
	require.True(t, after.wasGranted())
	require.NoError(t, after.giveUp(t.Context(), after.claim))
	require.True(t, next.wasGranted())
	require.ErrorIs(t, after.giveUp(t.Context(), after.claim), locker.ErrLost)
	require.True(t, next.holds())
}

// A grant to a process that gives up, with no process behind it in the queue, is
// announced to subscribers: waiters of hashreentrant and of Redisson.
func TestGrantGivenUpIsAnnounced(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	require.NoError(t, holder.gives())
	require.True(t, waiting.wasGranted())
	channel, _ := waiting.signals.Channel("k")
	sub := rdb.Subscribe(t.Context(), channel)
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, waiting.giveUp(t.Context(), waiting.claim))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Zero(t, rdb.Exists(t.Context(), "k", queueOfK).Val())
}

// Nothing is pushed to a process that does not block: its next attempt is granted.
func TestNothingIsPushedToPollers(t *testing.T) {
	rdb := start(t)
	holder, poller := hold(t, rdb), newPlace(t, rdb)
	poller.blocks = 0
	require.False(t, poller.asks())
	require.NoError(t, holder.gives())
	require.Empty(t, poller.told())
	require.True(t, poller.asks())
}

// A process that was not heard of for as long as a grant lasts is taken for dead.
func TestTheDeadAreSkipped(t *testing.T) {
	rdb := start(t)
	holder, dead := hold(t, rdb), takePlace(t, rdb)
	timePasses(t, rdb, 1100*time.Millisecond)
	silent := takePlace(t, rdb) // a busy machine's
	timePasses(t, rdb, 900*time.Millisecond)
	alive := takePlace(t, rdb)
	require.NoError(t, holder.gives())
	require.Empty(t, dead.told())
	require.True(t, silent.wasGranted(), "the first that may be alive")
	require.Empty(t, alive.told())
}

// However many processes die together while they wait, the others lose one short grant
// by it: then whoever asks gets the lock.
func TestManyDieAtOnce(t *testing.T) {
	rdb := start(t)
	holder := hold(t, rdb)
	dead := []*place{takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb)}
	alive, last := takePlace(t, rdb), takePlace(t, rdb)
	require.NoError(t, holder.gives())
	require.True(t, dead[0].wasGranted())
	timePasses(t, rdb, time.Second)
	require.False(t, alive.asks())
	require.False(t, last.asks())
	timePasses(t, rdb, time.Second)
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the grant is over
	require.True(t, last.asks(), "who asks is alive")
	require.False(t, alive.asks())
	ran(t, rdb, 0) // no opening
	require.NoError(t, last.gives())
	require.Empty(t, dead[1].told())
	require.Empty(t, dead[2].told())
	require.True(t, alive.wasGranted(), "it has kept its place")
}

// A lock whose holder vanished is granted to the first that waits, whoever asks.
func TestHolderVanished(t *testing.T) {
	rdb := start(t)
	hold(t, rdb)
	first, second := takePlace(t, rdb), takePlace(t, rdb)
	for range 2 {
		require.NoError(t, rdb.Del(t.Context(), "k").Err())
		require.False(t, second.asks())
		require.True(t, first.wasGranted())
		require.True(t, first.asks(), "it has confirmed the grant")
		first, second = second, first
		require.False(t, second.asks(), "it queues again")
	}
	require.NoError(t, rdb.Del(t.Context(), "k").Err())
	require.False(t, newPlace(t, rdb).tries(), "nor does one that does not wait get in between")
	require.True(t, first.wasGranted())
}

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
			channel, _ := first.signals.Channel("k")
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
		require.False(t, strings.Contains(stats, "cmdstat_"+cmd+":"), cmd)
	}
}
