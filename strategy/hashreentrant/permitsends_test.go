package hashreentrant_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// endOf returns for how long the claim lasts still, zero or less if it has ended; it fails if the claim has no end.
func endOf(t *testing.T, rdb *redis.Client, id string) time.Duration {
	t.Helper()
	ends, err := rdb.ZScore(t.Context(), permitsKey, id).Result()
	require.NoError(t, err, "the end of %s", id)
	return time.Until(time.UnixMilli(int64(ends)))
}

// setEnd moves the end of a claim, without a word to whoever has it.
func setEnd(t *testing.T, rdb *redis.Client, id string, ends time.Duration) {
	t.Helper()
	z := redis.Z{Score: float64(time.Now().Add(ends).UnixMilli()), Member: id}
	require.NoError(t, rdb.ZAdd(t.Context(), permitsKey, z).Err())
}

// expiries returns when the keys expire, by the server's clock in ms. It fails for a key that is not there, or never
// expires.
func expiries(t *testing.T, rdb *redis.Client, keys ...string) (all []int64) {
	t.Helper()
	for _, key := range keys {
		var left *redis.DurationCmd
		var now *redis.TimeCmd
		_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			left, now = p.PTTL(t.Context(), key), p.Time(t.Context())
			return nil
		})
		require.NoError(t, err)
		require.Positive(t, left.Val(), "%s is not there, or never expires", key)
		all = append(all, now.Val().Add(left.Val()).UnixMilli())
	}
	return all
}

// wantLasts wants each key to be there for more than d still.
func wantLasts(t *testing.T, rdb *redis.Client, d time.Duration, when string) {
	t.Helper()
	for _, key := range []string{"k", permitsKey} {
		require.Greater(t, rdb.PTTL(t.Context(), key).Val(), d, "%s %s", key, when)
	}
}

// head returns the field of the limit and of how many permits are out.
func head(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	return rdb.HGet(t.Context(), "k", "").Val()
}

// A repeated attempt of a claim moves its end, and that of the keys, upwards only.
func TestRepeatedPermitsEndNoEarlier(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	first := takePermits(t, d, idOf(1), time.Minute, 1, 9)
	require.Equal(t, 8, first.Free)
	require.Equal(t, first.Token, takePermits(t, d, idOf(1), time.Hour, 1, 9).Token)
	require.Greater(t, endOf(t, rdb, idOf(1)), 50*time.Minute)
	wantLasts(t, rdb, 50*time.Minute, "after an attempt with a longer TTL")
	again := takePermits(t, d, idOf(1), time.Second, 1, 9)
	require.Equal(t, first.Token, again.Token)
	require.Equal(t, 8, again.Free, "its own permit is counted once")
	require.Greater(t, endOf(t, rdb, idOf(1)), 50*time.Minute, "an attempt that was repeated with a shorter TTL")
	require.Equal(t, "permits 9 1", head(t, rdb))
}

// A grant, and a renewal, make the keys last as long as the claim, and no shorter than others' claims.
func TestKeysLastAsTheLongestClaim(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	renew := func(ttl time.Duration) {
		t.Helper()
		c := driver.Claim{Key: "k", ID: idOf(1), TTL: ttl, Permits: 1, Limit: 9, Token: 1}
		d.Renew(t.Context(), []driver.Claim{c}, func(_ int, err error) { require.NoError(t, err) })
	}
	require.True(t, takePermits(t, d, idOf(1), time.Minute, 1, 9).Granted)
	require.True(t, takePermits(t, d, idOf(2), time.Hour, 1, 9).Granted)
	wantLasts(t, rdb, 50*time.Minute, "after a grant with a longer TTL than the claim before")
	fence := redisdriver.FenceKey("k")
	require.NoError(t, rdb.PExpire(t.Context(), fence, time.Minute).Err())
	renew(3 * time.Hour)
	require.Greater(t, endOf(t, rdb, idOf(1)), 170*time.Minute)
	wantLasts(t, rdb, 170*time.Minute, "after a renewal")
	require.Greater(t, rdb.PTTL(t.Context(), fence).Val(), 170*time.Minute, "the fencing counter outlives the permit")
	renew(time.Minute)
	require.Greater(t, endOf(t, rdb, idOf(1)), 170*time.Minute, "a renewal with a shorter TTL, which may be a late one")
	require.NoError(t, rdb.Del(t.Context(), permitsKey).Err())
	renew(time.Hour)
	require.Greater(t, endOf(t, rdb, idOf(1)), 50*time.Minute, "a renewal after the set of ends was lost")
	wantLasts(t, rdb, 50*time.Minute, "after the renewal that made the set anew")
}

// Claims without an end get that of the key, and those with one keep it.
func TestLostEndsAreMadeAgain(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	for n := 1; n <= 2; n++ {
		require.True(t, takePermits(t, d, idOf(n), time.Hour, 1, 2).Granted)
	}
	require.NoError(t, rdb.Del(t.Context(), permitsKey).Err())
	setEnd(t, rdb, idOf(2), 2*time.Minute)
	require.False(t, takePermits(t, d, idOf(3), time.Minute, 1, 2).Granted)
	require.Greater(t, endOf(t, rdb, idOf(1)), 50*time.Minute)
	require.Less(t, endOf(t, rdb, idOf(2)), 3*time.Minute)
	wantLasts(t, rdb, 50*time.Minute, "and does not stay for ever")
}

// Claims that have ended leave nothing behind once they are in the way, and what they had is granted by the attempt
// that finds them.
func TestSweptPermitsLeaveNothing(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	for n, permits := range []int{2, 1, 1} {
		require.True(t, takePermits(t, d, idOf(n), time.Hour, permits, 4).Granted)
	}
	setEnd(t, rdb, idOf(0), -time.Minute)
	require.True(t, takePermits(t, d, idOf(3), time.Hour, 1, 4).Granted, "the attempt that sweeps is granted what it finds")
	require.ElementsMatch(t, []string{"", idOf(1), idOf(2), idOf(3)}, rdb.HKeys(t.Context(), "k").Val())
	require.ElementsMatch(t, []string{idOf(1), idOf(2), idOf(3)}, rdb.ZRange(t.Context(), permitsKey, 0, -1).Val())
	require.Equal(t, "permits 4 3", head(t, rdb))

	setEnd(t, rdb, idOf(1), -time.Minute)
	a := takePermits(t, d, idOf(4), time.Hour, 3, 5)
	require.True(t, a.Granted, "2 of 5 are out")
	require.Equal(t, 4, a.Limit)
	setEnd(t, rdb, idOf(2), -time.Minute)
	a = takePermits(t, d, idOf(5), time.Hour, 3, 6)
	require.False(t, a.Granted, "4 of 6 are out")
	require.Equal(t, []int{2, 5}, []int{a.Free, a.Limit})
	require.Equal(t, "permits 6 4", head(t, rdb), "a refusal notes what was swept, and the newest limit")
	require.False(t, takePermits(t, d, idOf(5), time.Hour, 3, 5).Granted)
	require.Equal(t, "permits 5 4", head(t, rdb), "a refusal that sweeps nothing notes the limit")
	setEnd(t, rdb, idOf(4), -time.Minute)
	require.Equal(t, 1, out(t, d))
	require.Equal(t, 1, out(t, d), "what a look has swept is not counted any more")
}

// An attempt sweeps some hundred claims and no more; then whoever waits asks again at once.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	const many = 350
	for n := range many {
		require.True(t, takePermits(t, d, idOf(n), time.Hour, 1, many).Granted)
		setEnd(t, rdb, idOf(n), -time.Minute)
	}
	a := takePermits(t, d, idOf(many), time.Hour, many, many)
	require.False(t, a.Granted)
	require.LessOrEqual(t, a.Remaining, time.Millisecond, "others have ended")
	require.Positive(t, a.Remaining)
	require.EqualValues(t, 50, rdb.ZCard(t.Context(), permitsKey).Val())
	require.True(t, takePermits(t, d, idOf(many), time.Hour, many, many).Granted)
}

// Claims that have ended are not counted, however many they are.
func TestManyEndedPermitsAreNotCounted(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	const many = 350
	for n := range many {
		require.True(t, takePermits(t, d, idOf(n), time.Hour, 1, many).Granted)
		if n > 0 {
			setEnd(t, rdb, idOf(n), -time.Minute)
		}
	}
	require.Equal(t, 1, out(t, d))
}

// Inspect shows no permits that have ended, and changes nothing.
func TestEndedPermitsAreNotShown(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	require.True(t, takePermits(t, d, idOf(1), time.Hour, 1, 9).Granted)
	require.True(t, takePermits(t, d, idOf(2), time.Hour, 2, 9).Granted)
	setEnd(t, rdb, idOf(2), -time.Minute)
	h, err := d.(driver.Inspector).Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []int{1, 9}, []int{h.Permits, h.Limit})
	for h, err := range d.(driver.PermitInspector).PermitClaims(t.Context(), "k") {
		require.NoError(t, err)
		require.Equal(t, idOf(1), h.ID)
	}
	require.Equal(t, "permits 9 3", head(t, rdb))
	require.EqualValues(t, 2, rdb.ZCard(t.Context(), permitsKey).Val())
}

// Each release is published, and nothing else is.
func TestReleasesOfPermitsAreTold(t *testing.T) {
	t.Parallel()
	d, rdb := newKeeper(t)
	const channel = "redisson_lock__channel:{k}"
	sub := rdb.Subscribe(t.Context(), channel)
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	told := func(when string) {
		t.Helper()
		require.NoError(t, rdb.Publish(t.Context(), channel, when).Err())
		var all []string
		for len(all) == 0 || all[len(all)-1] != when {
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			all = append(all, m.Payload)
		}
		if !strings.HasPrefix(when, "not") {
			require.Equal(t, []string{"0", when}, all)
			return
		}
		require.Equal(t, []string{when}, all)
	}
	release := func(n int) error {
		return d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(n), Permits: 1, Limit: 9})
	}
	for n := 1; n <= 3; n++ {
		require.True(t, takePermits(t, d, idOf(n), time.Hour, 1, 9).Granted)
	}
	told("not of grants")
	require.NoError(t, release(1))
	told("one of three")
	setEnd(t, rdb, idOf(2), -time.Minute)
	require.ErrorIs(t, release(2), driver.ErrLost)
	told("one that has ended")
	require.ErrorIs(t, release(2), driver.ErrLost)
	told("not of what is not there")
	require.NoError(t, release(3))
	told("the last one")
}

// wordsOf returns whose the bid is, for how many, and since when, and when it was heard of.
func wordsOf(t *testing.T, rdb *redis.Client) (claim string, count int, since, heard int64) {
	t.Helper()
	words := strings.Fields(rdb.HGet(t.Context(), "k", ">").Val())
	require.Len(t, words, 4, "a bid")
	var numbers [3]int64
	for i, w := range words[1:] {
		n, err := strconv.ParseInt(w, 10, 64)
		require.NoError(t, err)
		numbers[i] = n
	}
	return words[0], int(numbers[0]), numbers[1], numbers[2]
}
