package permitstest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// The permits of claims that were never given back are free after their TTL. A claim that lasts longer keeps the
// key from locks, though those that ended were renewed before.
func ofTheDeadEnd(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 0)
	long := claim(IDOf(0), time.Hour, 1, 1000)
	require.True(t, take(t, d, long).Granted)
	for i := range 700 { // more than one attempt forgets
		require.True(t, take(t, d, claim(IDOf(i+1), time.Minute, 1, 1000)).Granted)
	}
	require.Equal(t, 701, out(t, d))
	admin(t, s, `UPDATE `+t.k.Claims+` SET expires = `+t.k.After(0)+` WHERE expires < `+t.k.After(2*time.Minute))
	require.Equal(t, 1, out(t, d))
	dead := claim(IDOf(7), time.Minute, 1, 1000)
	d.Renew(ctx, []driver.Claim{dead, long}, func(i int, err error) {
		if i == 0 {
			require.ErrorIs(t, err, driver.ErrLost)
		} else {
			require.NoError(t, err)
		}
	})
	require.ErrorIs(t, d.Release(ctx, dead), driver.ErrLost)
	big, lock := claim(ofOther(1), time.Minute, 999, 1000), claim(ofOther(2), time.Minute, 0, 0)
	require.True(t, take(t, d, big).Granted, "999 of 1000 are free")
	require.Equal(t, 1000, out(t, d))
	require.NoError(t, d.Release(ctx, big))
	require.False(t, take(t, d, lock).Granted)
	require.NoError(t, d.Release(ctx, long))
	require.True(t, take(t, d, lock).Granted)
	_, _, err := d.(driver.PermitKeeper).Permits(ctx, "k")
	require.ErrorIs(t, err, driver.ErrConflict)
	require.False(t, take(t, d, big).Granted)
	require.NoError(t, d.Release(ctx, lock))
	require.True(t, take(t, d, claim(ofOther(3), time.Minute, 1000, 1000)).Granted)
}

// However many permits the dead had, the first request that nobody alive excludes is granted: TryLock asks once.
func ofManyDeadAreFree(t *test) {
	for _, next := range []driver.Claim{claim(ofOther(1), time.Minute, 20_000, 20_000), claim(ofOther(2), time.Minute, 0, 0)} {
		s := t.k.Start(t.T)
		d := s.Driver(t.T, 0)
		for i := range 9 {
			require.True(t, take(t, d, claim(IDOf(i), time.Hour, 1, 20_000)).Granted)
		}
		admin(t, s, t.k.Fill)
		require.Greater(t, out(t, d), 9_000)
		admin(t, s, `UPDATE `+t.k.Claims+` SET expires = `+t.k.After(0))
		require.True(t, take(t, d, next).Granted)
	}
}

// An older version takes a key with permits for locked. It does so for as long as a claim may last.
func headOutlastsItsClaims(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 0)
	check := func(when string) {
		t.Helper()
		early := -1
		require.NoError(t, s.Ask(ctx, &early, `SELECT COUNT(*) FROM `+t.k.Claims+` p JOIN `+t.k.Keys+` l USING (hash) WHERE p.era = l.since AND p.expires > l.expires`))
		require.Zero(t, early, when)
	}
	soon := func() {
		t.Helper()
		for _, table := range []string{t.k.Keys, t.k.Claims} {
			admin(t, s, `UPDATE `+table+` SET expires = `+t.k.After(10*time.Second))
		}
	}
	short, long := claim(IDOf(1), time.Second, 1, 9), claim(IDOf(2), time.Hour, 1, 9)
	require.True(t, take(t, d, short).Granted)
	check("after a grant")
	require.True(t, take(t, d, long).Granted)
	require.NoError(t, d.Release(ctx, short))
	check("after a longer one")
	for _, claims := range [][]driver.Claim{{long}, {long, short}} {
		soon()
		d.Renew(ctx, claims, func(i int, err error) {
			if i == 0 {
				require.NoError(t, err)
			}
		})
		check("after a renewal")
	}
	soon()
	require.True(t, take(t, d, long).Granted)
	check("after an Acquire that is sent again")
}

// When the last claim of a key has ended, the next lock or permit begins anew: what was left is void.
func erasEnd(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 0)
	dead, lock := claim(IDOf(1), time.Hour, 2, 3), claim(ofOther(1), time.Minute, 0, 0)
	var last int64
	for name, next := range map[string]driver.Claim{"lock": lock, "permits": claim(ofOther(2), time.Minute, 3, 3)} {
		require.True(t, take(t, d, dead).Granted, name)
		admin(t, s, `UPDATE `+t.k.Keys+` SET expires = `+t.k.After(0))
		a := take(t, d, next)
		require.True(t, a.Granted, name)
		require.Greater(t, a.Token, last)
		last = a.Token
		d.Renew(ctx, []driver.Claim{dead}, func(_ int, err error) { require.ErrorIs(t, err, driver.ErrLost, name) })
		require.ErrorIs(t, d.Release(ctx, dead), driver.ErrLost, name)
		require.NoError(t, d.Release(ctx, next))
		require.Zero(t, out(t, d))
	}
}

// Releases delete the rows of claims that nobody needs. They keep the claims of an era that goes on.
func oldClaimsAreForgotten(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 0)
	old := claim(IDOf(1), time.Hour, 1, 3)
	old.Key = "old"
	require.True(t, take(t, d, old).Granted)
	dead, alive := claim(IDOf(2), time.Minute, 1, 3), claim(IDOf(3), time.Minute, 1, 3)
	require.True(t, take(t, d, dead).Granted)
	require.True(t, take(t, d, alive).Granted)
	ages := ` SET expires = ` + t.k.After(-11*time.Minute) + `, forget = ` + t.k.After(-time.Minute)
	admin(t, s, `UPDATE `+t.k.Claims+ages+` WHERE NOT (`+t.k.Is(alive.ID)+`)`)
	admin(t, s, `UPDATE `+t.k.Keys+ages+` WHERE `+t.k.Key+` = 'old'`)
	left := func(c driver.Claim) (n int) {
		t.Helper()
		require.NoError(t, s.Ask(ctx, &n, `SELECT COUNT(*) FROM `+t.k.Claims+` WHERE `+t.k.Text("id")+` = '`+c.ID+`'`))
		return n
	}
	n := 0
	pace.Eventually(t, 30*time.Second, "a release sweeps the tables, and the next sweep finds no head of the old claim", func() bool {
		n++
		c := claim(ofOther(n), time.Minute, 1, 3)
		require.True(t, take(t, d, c).Granted)
		require.NoError(t, d.Release(ctx, c))
		return left(old) == 0
	})
	require.Equal(t, 1, left(dead))
	require.Equal(t, 1, left(alive))
	require.True(t, take(t, d, claim(ofThird(1), time.Minute, 2, 3)).Granted, "the dead one gave its permit")
	require.False(t, take(t, d, claim(ofThird(2), time.Minute, 1, 3)).Granted)
}

// The bid of a claim ends with its Release, and no other claim's does. Where a store wakes waiters, its Watches signal it.
func bidEndsWithItsClaim(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d, other := s.Driver(t.T, 0), s.Driver(t.T, 0) // the other was refused nothing
	first := claim(ofOther(1), time.Minute, 1, 4)
	require.True(t, take(t, other, first).Granted)
	before, now := claim(IDOf(1), time.Minute, 4, 4), claim(IDOf(2), time.Minute, 4, 4)
	require.True(t, waits(t, d, before, time.Second).Bids)
	require.True(t, waits(t, d, now, 2*time.Second).Bids)
	woken := func(string) {}
	if n, ok := d.(driver.Notifier); ok {
		w, err := n.Watch(ctx, "k")
		require.NoError(t, err)
		defer w.Close()
		woken = func(after string) {
			t.Helper()
			late, stop := pace.Timeout(20 * time.Second)
			defer stop()
			select {
			case <-w.C():
			case <-late:
				require.Fail(t, "waiters are not woken", after)
			}
		}
	}
	require.ErrorIs(t, d.Release(ctx, before), driver.ErrLost)
	refused := take(t, other, claim(ofOther(2), time.Minute, 1, 4))
	require.False(t, refused.Granted, "permits are kept free for the later attempt")
	require.Positive(t, refused.Remaining)
	require.LessOrEqual(t, refused.Remaining, driver.BidTime)
	require.NoError(t, other.Release(ctx, first))
	woken("a release")
	require.False(t, take(t, other, claim(ofOther(3), time.Minute, 0, 0)).Granted, "who bids is next")
	require.ErrorIs(t, d.Release(ctx, now), driver.ErrLost)
	woken("the end of a bid")
	require.True(t, take(t, other, claim(ofOther(4), time.Minute, 1, 4)).Granted)
}
