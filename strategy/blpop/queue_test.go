package blpop

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
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

// The order is that of arrival, whatever the server's clock does.
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

// An attempt that is applied when the process waits with a later one changes nothing: sent
// again, or late, its caller having left.
func TestLateAttempt(t *testing.T) {
	for name, leave := range map[string]bool{"sent again": false, "its caller left": true} {
		t.Run(name, func(t *testing.T) {
			rdb := start(t)
			holder, waiting := hold(t, rdb), newPlace(t, rdb)
			require.False(t, waiting.asks())
			earlier := waiting.claim
			require.False(t, waiting.asks())
			later, next := waiting.claim, takePlace(t, rdb)
			waiting.claim, waiting.nth, waiting.before = earlier, 1, ""
			require.False(t, waiting.sends().Granted)
			if leave {
				require.ErrorIs(t, waiting.giveUp(t.Context(), earlier), locker.ErrLost)
			}
			waiting.claim = later
			require.NoError(t, holder.gives())
			require.True(t, waiting.wasGranted(), "it has kept its place")
			require.NoError(t, waiting.gives())
			require.True(t, next.wasGranted())
		})
	}
}

// An attempt that is sent again when the lock is free takes neither it nor its process's place.
func TestLateAttemptForAFreeLock(t *testing.T) {
	rdb := start(t)
	hold(t, rdb)
	waiting := takePlace(t, rdb)
	earlier := waiting.claim
	require.False(t, waiting.asks())
	later := waiting.claim
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	waiting.claim, waiting.nth = earlier, 1
	require.False(t, waiting.sends().Granted)
	waiting.claim, waiting.nth, waiting.before = later, 2, ""
	require.True(t, waiting.sends().Granted)
}

// An attempt that was not answered may have taken what was granted to the process: the
// next attempt, which names both, is granted the lock. So it is if the one without an
// answer was granted the free lock.
func TestGrantThatPassedToALostAttempt(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	require.NoError(t, holder.gives())
	first := waiting.claim.ID
	require.True(t, waiting.asks())
	waiting.before = first + " " + waiting.claim.ID // it was not answered
	require.True(t, waiting.asks())
	require.True(t, waiting.holds())
	first, waiting.before = waiting.claim.ID, ""
	require.False(t, waiting.asks(), "beside it: it takes a place")
	waiting.before = first
	require.True(t, waiting.asks())
	require.NoError(t, waiting.gives())
	require.Zero(t, rdb.Exists(t.Context(), "k").Val(), "it has no place")
}

// A release takes as many commands however many processes wait or have left.
func TestReleaseLooksAtTheFirst(t *testing.T) {
	rdb := start(t)
	calls := func() (n int) {
		for _, m := range regexp.MustCompile(`cmdstat_h\w+:calls=(\d+)`).FindAllStringSubmatch(rdb.Info(t.Context(), "commandstats").Val(), -1) {
			calls, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n += calls
		}
		return n
	}
	holder, waiting, left := hold(t, rdb), takePlace(t, rdb), newPlace(t, rdb)
	for range 50 {
		require.False(t, left.asks())
		_ = left.giveUp(t.Context(), left.claim)
	}
	require.False(t, waiting.asks(), "it has not been silent for long")
	takePlace(t, rdb)
	fields := rdb.HLen(t.Context(), queueOfK).Val()
	require.LessOrEqual(t, fields, int64(8), "three for each that waits, and both ends")
	before := calls()
	require.NoError(t, holder.gives())
	require.Less(t, calls()-before, 30)
	require.True(t, waiting.wasGranted())
}

// Waiters in the middle, first or last may leave: the others keep their order.
func TestLeavingAnywhere(t *testing.T) {
	for _, leaves := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint(leaves), func(t *testing.T) {
			rdb := start(t)
			holder := hold(t, rdb)
			waiting := []*place{takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb), takePlace(t, rdb)}
			_ = waiting[leaves].giveUp(t.Context(), waiting[leaves].claim)
			require.False(t, waiting[leaves].asks(), "it comes again, as the last")
			for _, next := range append(slices.Delete(slices.Clone(waiting), leaves, leaves+1), waiting[leaves]) {
				require.NoError(t, holder.gives())
				require.True(t, next.wasGranted())
				holder = next
			}
			require.NoError(t, holder.gives())
			require.Zero(t, rdb.Exists(t.Context(), "k", queueOfK).Val())
		})
	}
}

// A grant to a process that gives up, with no process behind it in the queue, is
// announced to subscribers: waiters of hashreentrant and of Redisson.
func TestGrantGivenUpIsAnnounced(t *testing.T) {
	rdb := start(t)
	holder, waiting := hold(t, rdb), takePlace(t, rdb)
	require.NoError(t, holder.gives())
	require.True(t, waiting.wasGranted())
	channel, _ := waiting.Channels.Of("k")
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
