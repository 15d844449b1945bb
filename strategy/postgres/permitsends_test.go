package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
)

// The permits of claims that were never given back are free after their TTL. A claim that lasts longer keeps the
// key from locks, though those that ended were renewed before.
func TestPermitsOfTheDeadEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	d, ctx := postgres.NewDriver(s.pool(t, "")), t.Context()
	defer d.Close()
	long := permitsOf(idOf(0), time.Hour, 1, 1000)
	require.True(t, takePermits(t, d, long).Granted)
	for i := range 700 { // more than one attempt forgets
		require.True(t, takePermits(t, d, permitsOf(idOf(i+1), time.Minute, 1, 1000)).Granted)
	}
	require.Equal(t, 701, out(t, d))
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = clock_timestamp() WHERE expires < clock_timestamp() + interval '2 min'`))
	require.Equal(t, 1, out(t, d))
	dead := permitsOf(idOf(7), time.Minute, 1, 1000)
	d.Renew(ctx, []driver.Claim{dead, long}, func(i int, err error) {
		if i == 0 {
			require.ErrorIs(t, err, driver.ErrLost)
		} else {
			require.NoError(t, err)
		}
	})
	require.ErrorIs(t, d.Release(ctx, dead), driver.ErrLost)
	big, lock := permitsOf(ofOther(1), time.Minute, 999, 1000), permitsOf(ofOther(2), time.Minute, 0, 0)
	pace.Eventually(t, 20*time.Second, "999 of 1000 are free", func() bool { return takePermits(t, d, big).Granted })
	require.Equal(t, 1000, out(t, d))
	require.NoError(t, d.Release(ctx, big))
	require.False(t, takePermits(t, d, lock).Granted)
	require.NoError(t, d.Release(ctx, long))
	require.True(t, takePermits(t, d, lock).Granted)
	_, _, err := d.(driver.PermitKeeper).Permits(ctx, "k")
	require.ErrorIs(t, err, driver.ErrConflict)
	require.False(t, takePermits(t, d, big).Granted)
	require.NoError(t, d.Release(ctx, lock))
	require.True(t, takePermits(t, d, permitsOf(ofOther(3), time.Minute, 1000, 1000)).Granted)
}

// An older version takes a key with permits for locked. It does so for as long as a claim may last.
func TestHeadOutlastsItsClaims(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	check := func(when string) {
		t.Helper()
		early := -1
		require.NoError(t, s.ask(ctx, &early, `SELECT count(*) FROM `+permitsTable+` p JOIN `+table+` l USING (hash) WHERE p.era = l.since AND p.expires > l.expires`))
		require.Zero(t, early, when)
	}
	short, long := permitsOf(idOf(1), time.Second, 1, 9), permitsOf(idOf(2), time.Minute, 1, 9)
	require.True(t, takePermits(t, d, short).Granted)
	check("after a grant")
	require.True(t, takePermits(t, d, long).Granted)
	require.NoError(t, d.Release(ctx, short))
	check("after a longer one")
	for _, claims := range [][]driver.Claim{{long}, {long, short}} {
		require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = clock_timestamp() + interval '10 s'`))
		require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = clock_timestamp() + interval '10 s'`))
		d.Renew(ctx, claims, func(i int, err error) {
			if i == 0 {
				require.NoError(t, err)
			}
		})
		check("after a renewal")
	}
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = clock_timestamp() + interval '10 s'`))
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = clock_timestamp() + interval '10 s'`))
	require.True(t, takePermits(t, d, long).Granted)
	check("after an Acquire that is sent again")
}

// When the last claim of a key has ended, the next lock or permit begins anew: what was left is void.
func TestErasEnd(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	dead, lock := permitsOf(idOf(1), time.Hour, 2, 3), permitsOf(ofOther(1), time.Minute, 0, 0)
	var last int64
	for name, next := range map[string]driver.Claim{"lock": lock, "permits": permitsOf(ofOther(2), time.Minute, 3, 3)} {
		require.True(t, takePermits(t, d, dead).Granted, name)
		require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = clock_timestamp()`))
		a := takePermits(t, d, next)
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
func TestOldClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	old := permitsOf(idOf(1), time.Hour, 1, 3)
	old.Key = "old"
	require.True(t, takePermits(t, d, old).Granted)
	dead, alive := permitsOf(idOf(2), time.Minute, 1, 3), permitsOf(idOf(3), time.Minute, 1, 3)
	require.True(t, takePermits(t, d, dead).Granted)
	require.True(t, takePermits(t, d, alive).Granted)
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = clock_timestamp() - interval '11 min', forget = clock_timestamp() - interval '1 min' WHERE id <> $1`, []byte(alive.ID)))
	require.NoError(t, s.admin(ctx, `UPDATE `+table+` SET expires = clock_timestamp() - interval '11 min', forget = clock_timestamp() - interval '1 min' WHERE key = 'old'`))
	for i := range 17 { // one of them sweeps; a key's row goes before its claims
		c := permitsOf(ofOther(i), time.Minute, 1, 3)
		require.True(t, takePermits(t, d, c).Granted)
		require.NoError(t, d.Release(ctx, c))
	}
	rows, err := s.pool(t, "").Query(ctx, `SELECT convert_from(id, 'UTF8') FROM `+permitsTable)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, []string{dead.ID, alive.ID}, ids)
	require.True(t, takePermits(t, d, permitsOf(ofOther(99), time.Minute, 2, 3)).Granted, "the dead one gave its permit")
	require.False(t, takePermits(t, d, permitsOf(ofOther(100), time.Minute, 1, 3)).Granted)
}

// The bid of a claim ends with its Release, and no other claim's does.
func TestBidEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	d := postgres.NewDriver(startServer(t).pool(t, ""))
	defer d.Close()
	ctx := t.Context()
	first := permitsOf(ofOther(1), time.Minute, 1, 4)
	require.True(t, takePermits(t, d, first).Granted)
	before, now := permitsOf(idOf(1), time.Minute, 4, 4), permitsOf(idOf(2), time.Minute, 4, 4)
	require.True(t, waits(t, d, before, time.Second).Bids)
	require.True(t, waits(t, d, now, 2*time.Second).Bids)
	w, err := d.(driver.Notifier).Watch(ctx, "k")
	require.NoError(t, err)
	defer w.Close()
	require.ErrorIs(t, d.Release(ctx, before), driver.ErrLost)
	refused := takePermits(t, d, permitsOf(ofOther(2), time.Minute, 1, 4))
	require.False(t, refused.Granted, "permits are kept free for the later attempt")
	require.Positive(t, refused.Remaining)
	require.LessOrEqual(t, refused.Remaining, driver.BidTime)
	require.NoError(t, d.Release(ctx, first))
	<-w.C()
	require.False(t, takePermits(t, d, permitsOf(ofOther(3), time.Minute, 0, 0)).Granted, "who bids is next")
	require.ErrorIs(t, d.Release(ctx, now), driver.ErrLost)
	select {
	case <-w.C():
	case <-time.After(20 * time.Second):
		require.Fail(t, "those that it kept out are not woken")
	}
	require.True(t, takePermits(t, d, permitsOf(ofOther(4), time.Minute, 1, 4)).Granted)
}
