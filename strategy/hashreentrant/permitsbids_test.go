package hashreentrant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	bidTime = int64(driver.BidTime / time.Millisecond)
	bidEnds = bidTime - 250 // newer servers count an expiry from the beginning of the script
	shorter = 3 * driver.BidTime / 4
)

// ofOther, and ofThird, are the ids of claims of other Lockers.
func ofOther(n int) string { return strings.Replace(idOf(n), "0", "1", 1) }
func ofThird(n int) string { return strings.Replace(idOf(n), "0", "2", 1) }

// waits makes an attempt of a caller that has waited: for n permits of limit, or for the lock if both are 0.
func waits(t *testing.T, d driver.Driver, id string, ttl time.Duration, n, limit int, waited time.Duration) driver.Answer {
	t.Helper()
	c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Permits: n, Limit: limit}
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Waits: true, Waited: waited})
	require.NoError(t, err)
	return a
}

func bids(t *testing.T, rdb *redis.Client) bool {
	t.Helper()
	return rdb.HExists(t.Context(), "k", ">").Val()
}

// A grant ends the bid of its Locker, and no other bid.
func TestGrantEndsItsBid(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), time.Hour, 1, 4).Granted)
	require.True(t, waits(t, d, idOf(1), time.Hour, 4, 4, 2*time.Second).Bids)
	require.True(t, waits(t, d, ofThird(1), time.Hour, 1, 4, time.Minute).Granted, "it has waited longer than who bids")
	claim, count, _, _ := wordsOf(t, rdb)
	require.Equal(t, []any{idOf(1), 4}, []any{claim, count}, "the bid stands")
	for _, id := range []string{ofOther(1), ofThird(1)} {
		require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: id, Permits: 1, Limit: 4}))
	}
	require.True(t, waits(t, d, idOf(2), time.Hour, 4, 4, 2*time.Second).Granted)
	require.False(t, bids(t, rdb), "who has the permits waits no more")
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(2), Permits: 4, Limit: 4}))
	require.Zero(t, rdb.Exists(t.Context(), "k", permitsKey).Val())
}

// A request for several permits bids at once, and a request for one permit after a second. The bid belongs to the request that
// has waited longest, and each of its attempts makes the bid last.
func TestWhoBids(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), time.Hour, 4, 4).Granted)
	require.False(t, takePermits(t, d, idOf(1), time.Hour, 4, 4).Granted)
	require.False(t, waits(t, d, idOf(1), time.Hour, 1, 4, driver.Patience-time.Millisecond).Bids)
	require.False(t, bids(t, rdb), "nobody has waited for long, or for several")
	require.True(t, waits(t, d, idOf(2), time.Hour, 1, 4, driver.Patience).Bids)
	require.NoError(t, rdb.HDel(t.Context(), "k", ">").Err())
	require.True(t, waits(t, d, idOf(3), time.Hour, 2, 4, 0).Bids)
	require.True(t, waits(t, d, ofThird(1), time.Hour, 3, 4, time.Minute).Bids)
	require.False(t, waits(t, d, idOf(4), time.Hour, 2, 4, time.Second).Bids, "another one has waited longer")
	claim, count, since, heard := wordsOf(t, rdb)
	require.Equal(t, []any{ofThird(1), 3, time.Minute.Milliseconds()}, []any{claim, count, heard - since})
	earlier := fmt.Sprintf("%s 3 %d %d", claim, since, heard-bidTime/2)
	require.NoError(t, rdb.HSet(t.Context(), "k", ">", earlier).Err())
	require.True(t, waits(t, d, ofThird(2), time.Hour, 2, 4, 2*time.Minute).Bids)
	claim, count, _, again := wordsOf(t, rdb)
	require.Equal(t, []any{ofThird(2), 2}, []any{claim, count})
	require.GreaterOrEqual(t, again, heard)
}

// A bid keeps the keys, though the permits that are out end before it does.
func TestBidKeepsTheKeys(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), shorter, 4, 4).Granted)
	require.True(t, waits(t, d, idOf(1), time.Hour, 4, 4, time.Second).Bids)
	_, _, _, heard := wordsOf(t, rdb)
	ends := expiries(t, rdb, "k", permitsKey)
	require.GreaterOrEqual(t, ends[0], heard+bidEnds)
	require.GreaterOrEqual(t, ends[1], heard+bidEnds, "the set of ends lasts as long")

	require.True(t, waits(t, d, ofThird(1), time.Hour, 4, 8, time.Minute).Granted)
	require.True(t, waits(t, d, idOf(2), time.Hour, 8, 8, time.Second).Bids)
	_, _, _, heard = wordsOf(t, rdb)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: ofThird(1), Permits: 4, Limit: 8}))
	ends = expiries(t, rdb, "k", permitsKey)
	require.GreaterOrEqual(t, ends[0], heard+bidEnds, "what is left of the permits ends before, and the bid does not")
	require.GreaterOrEqual(t, ends[1], heard+bidEnds)
	require.Less(t, ends[0], heard+time.Minute.Milliseconds(), "nobody has an hour any more")
}

// After the last release the key is there for the time of a bid, without permits; the set of ends of who comes
// then lasts as long as the key.
func TestKeyOfWhoBids(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), time.Hour, 4, 4).Granted)
	require.True(t, waits(t, d, idOf(1), time.Hour, 4, 4, time.Second).Bids)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: ofOther(1), Permits: 4, Limit: 4}))
	require.Equal(t, "permits 4 0", head(t, rdb))
	require.Less(t, rdb.PTTL(t.Context(), "k").Val(), time.Minute, "nobody has an hour any more")
	a := waits(t, d, ofThird(1), time.Hour, 1, 4, 0)
	require.False(t, a.Granted, "its permits are kept free for who bids")
	require.LessOrEqual(t, a.Remaining, driver.BidTime+time.Millisecond)
	require.Positive(t, a.Remaining, "it waits for the end of the bid")
	require.True(t, waits(t, d, ofThird(2), 100*time.Millisecond, 1, 4, time.Minute).Granted)
	ends := expiries(t, rdb, "k", permitsKey)
	require.GreaterOrEqual(t, ends[1], ends[0]-250)
}

// A request that only a bid keeps out is answered with the end of the bid, and not with the end of a permit.
func TestRefusedForABid(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), time.Hour, 1, 4).Granted)
	require.True(t, waits(t, d, idOf(1), time.Hour, 4, 4, time.Second).Bids)
	a := takePermits(t, d, ofThird(1), time.Hour, 1, 4)
	require.False(t, a.Granted)
	require.LessOrEqual(t, a.Remaining, driver.BidTime+time.Millisecond)
	require.Zero(t, a.Free)
	a = takePermits(t, d, ofThird(2), time.Hour, 3, 4)
	require.LessOrEqual(t, a.Remaining, driver.BidTime+time.Millisecond, "but for the bid, the last permits would be its own")
	a = takePermits(t, d, ofThird(2), time.Hour, 4, 4)
	require.Greater(t, a.Remaining, 50*time.Minute, "it waits for the permits, too")
	require.NotContains(t, rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_hkeys", "no command looks at all claims")

	// A bid that was not heard of for 2 s, or comes from the future as the clock was set back, is none.
	_, _, since, heard := wordsOf(t, rdb)
	for n, at := range []int64{heard - 2*bidTime, heard + time.Hour.Milliseconds()} {
		require.NoError(t, rdb.HSet(t.Context(), "k", ">", fmt.Sprintf("%s 4 %d %d", idOf(1), since, at)).Err())
		require.True(t, takePermits(t, d, ofThird(3+n), time.Hour, 1, 4).Granted)
	}
}

// A lock that waits bids for the whole key, sweeps what is in its way, and comes behind an earlier bid. A lock that
// does not wait leaves nothing behind.
func TestLockAtAKeyWithPermits(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	lock := func(id string, waited time.Duration) bool {
		t.Helper()
		return waits(t, d, id, time.Hour, 0, 0, waited).Granted
	}
	for n, permits := range []int{2, 1} {
		require.True(t, takePermits(t, d, ofOther(n), shorter, permits, 9).Granted)
	}
	setEnd(t, rdb, ofOther(0), -time.Minute)
	setEnd(t, rdb, ofOther(1), time.Hour)
	require.False(t, lock(idOf(1), 0))
	require.False(t, bids(t, rdb), "it has only begun to wait")
	require.False(t, lock(idOf(2), 2*time.Second))
	require.Equal(t, "permits 9 1", head(t, rdb), "what has ended is swept")
	claim, count, _, heard := wordsOf(t, rdb)
	require.Equal(t, []any{idOf(2), driver.MaxPermits}, []any{claim, count})
	require.GreaterOrEqual(t, expiries(t, rdb, "k")[0], heard+bidEnds)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: ofOther(1), Permits: 1, Limit: 9}))
	require.False(t, lock(ofThird(1), time.Second), "another one has waited longer")
	require.False(t, lock(ofThird(2), 0))
	require.True(t, lock(idOf(3), 2*time.Second), "it is the turn of who bids")
	require.Equal(t, map[string]string{idOf(3): "1"}, rdb.HGetAll(t.Context(), "k").Val())
}

// A lock that has waited longer than who bids comes first.
func TestLockBeforeABid(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, ofOther(1), time.Hour, 1, 4).Granted)
	require.True(t, waits(t, d, idOf(1), time.Hour, 4, 4, time.Second).Bids)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: ofOther(1), Permits: 1, Limit: 4}))
	require.True(t, waits(t, d, ofThird(1), time.Hour, 0, 0, time.Minute).Granted)
	require.Equal(t, map[string]string{ofThird(1): "1"}, rdb.HGetAll(t.Context(), "k").Val())
}

// Permits that have ended make room beside a bid, too.
func TestSweepBesideABid(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	for n := range 2 {
		require.True(t, takePermits(t, d, ofOther(n), time.Hour, 2, 4).Granted)
	}
	require.True(t, waits(t, d, idOf(1), time.Hour, 2, 4, time.Second).Bids)
	for n := range 2 {
		setEnd(t, rdb, ofOther(n), -time.Minute)
	}
	require.True(t, takePermits(t, d, ofThird(1), time.Hour, 1, 4).Granted, "the bid leaves two")
	require.True(t, bids(t, rdb))
}
