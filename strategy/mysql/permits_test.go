package mysql_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// idOf, ofOther and ofThird are the ids of claims of three Lockers.
func idOf(n int) string    { return fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", n) }
func ofOther(n int) string { return strings.Replace(idOf(n), "0", "1", 1) }
func ofThird(n int) string { return strings.Replace(idOf(n), "0", "2", 1) }

func permitsOf(id string, ttl time.Duration, n, limit int) driver.Claim {
	return driver.Claim{Key: "k", ID: id, Owner: id, TTL: ttl, Permits: n, Limit: limit}
}

func takePermits(t *testing.T, d driver.Driver, c driver.Claim) driver.Answer {
	t.Helper()
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
	require.NoError(t, err)
	return a
}

// waits makes an attempt of a caller that has waited.
func waits(t *testing.T, d driver.Driver, c driver.Claim, waited time.Duration) driver.Answer {
	t.Helper()
	a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Waits: true, Waited: waited})
	require.NoError(t, err)
	return a
}

func out(t *testing.T, d driver.Driver) int {
	t.Helper()
	n, _, err := d.(driver.PermitKeeper).Permits(t.Context(), "k")
	require.NoError(t, err)
	return n
}

// A claim counts once, however often and at whatever time its Acquire arrives.
func TestPermitsSentAgainCountOnce(t *testing.T) {
	t.Parallel()
	d := lockmysql.NewDriver(startServer(t).pool(t, 16, ""))
	defer d.Close()
	const times = 8
	for round := range 20 {
		limit := []int{3, 99}[round%2] // without room for it twice, and with it
		c := permitsOf(idOf(round), time.Minute, 2, limit)
		var all sync.WaitGroup
		tokens := make([]int64, times)
		for i := range times {
			all.Go(func() {
				a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
				if err != nil || !a.Granted {
					t.Errorf("sent %d times at once, a request is refused: %v", times, err)
				}
				tokens[i] = a.Token
			})
		}
		all.Wait()
		for _, token := range tokens {
			require.Equal(t, tokens[0], token)
		}
		require.Equal(t, 2, out(t, d))
		require.False(t, takePermits(t, d, permitsOf(ofOther(round), time.Minute, limit-1, limit)).Granted)
		require.NoError(t, d.Release(t.Context(), c))
		require.ErrorIs(t, d.Release(t.Context(), c), driver.ErrLost)
		require.Zero(t, out(t, d))
	}
}

// Without tokens the permits are kept, too.
func TestPermitsWithoutFencing(t *testing.T) {
	t.Parallel()
	d := lockmysql.NewDriver(startServer(t).pool(t, 0, ""))
	defer d.Close()
	take := func(c driver.Claim) bool {
		t.Helper()
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c})
		require.NoError(t, err)
		require.Zero(t, a.Token)
		return a.Granted
	}
	one, two := permitsOf(idOf(1), time.Minute, 1, 2), permitsOf(idOf(2), time.Minute, 1, 2)
	for range 2 {
		require.True(t, take(one))
		require.True(t, take(one))
		require.True(t, take(two))
		require.False(t, take(permitsOf(idOf(3), time.Minute, 1, 2)))
		require.NoError(t, d.Release(t.Context(), one))
		require.NoError(t, d.Release(t.Context(), two))
		require.Zero(t, out(t, d))
	}
}

// Inspect shows how many are out, and Permits who has them; ForceUnlock takes those of one claim.
func TestInspectPermits(t *testing.T) {
	t.Parallel()
	l := newLocker(t, startServer(t).pool(t, 0, ""), locker.WithPrefix("app:"))
	s, err := locker.NewSemaphore(l, "k", 200)
	require.NoError(t, err)
	ctx := locker.ContextWithOwner(t.Context(), "ann lee")
	want := map[int64]int{}
	for i := range 130 {
		lease, err := s.AcquireN(ctx, 1+i%2)
		require.NoError(t, err)
		want[lease.Token()] = 1 + i%2
	}
	h, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, h.Held)
	require.Equal(t, []any{195, 200, "", "mysql"}, []any{h.Permits, h.Limit, h.ID, h.Strategy})
	require.Positive(t, h.Remaining)
	require.ErrorIs(t, l.ForceUnlock(t.Context(), h), locker.ErrConflict)
	got := map[int64]int{}
	var one locker.Holder
	for h, err := range l.Permits(t.Context(), "k") {
		require.NoError(t, err)
		require.Equal(t, []any{"k", "ann lee", 200}, []any{h.Key, h.Owner, h.Limit})
		require.Positive(t, h.Remaining)
		got[h.Token], one = h.Permits, h
	}
	require.Equal(t, want, got)
	require.NoError(t, l.ForceUnlock(t.Context(), one))
	require.ErrorIs(t, l.ForceUnlock(t.Context(), one), locker.ErrNotHeld)
	free, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5+one.Permits, free)
}

// In a database from before permits their error names the missing table and what to do. Locks work as before.
func TestPermitsNeedTheirTable(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	keys, err := lockmysql.Schema(table)
	require.NoError(t, err)
	permits, err := lockmysql.PermitsSchema(table)
	require.NoError(t, err)
	for _, sql := range []string{keys, `CREATE USER weak`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ` + table + ` TO weak`} {
		require.NoError(t, s.admin(ctx, sql))
	}
	cfg := config("weak", "app")
	cfg.Net, cfg.Addr = "tcp", s.addr()
	db, err := openPool(cfg.FormatDSN(), 0)
	require.NoError(t, err)
	defer db.Close()
	l := newLocker(t, db)
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	sem, err := locker.NewSemaphore(l, "k", 2)
	require.NoError(t, err)
	_, err = sem.Acquire(ctx)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "mysql.PermitsSchema")
	require.ErrorContains(t, err, "`locker_locks_permits`")

	require.NoError(t, s.admin(ctx, permits))
	require.NoError(t, s.admin(ctx, `GRANT SELECT, INSERT, UPDATE, DELETE ON `+permitsTable+` TO weak`))
	lease, err = sem.Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
}

// The table of permits has a name of its own, however long that of the keys is.
func TestPermitsOfLongNames(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, name := range []string{strings.Repeat("x", 56), strings.Repeat("x", 57), strings.Repeat("x", 64), "app." + strings.Repeat("y", 64), "a{now}b `%d"} {
		l := newLocker(t, s.pool(t, 0, ""), lockmysql.WithTable(name))
		sem, err := locker.NewSemaphore(l, "k", 2)
		require.NoError(t, err)
		for range 2 {
			_, err := sem.Acquire(t.Context())
			require.NoError(t, err, name)
		}
		_, err = sem.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrNotAcquired, name)
	}
	n := 0
	require.NoError(t, s.ask(t.Context(), &n, `SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE '%\\_permits'`))
	require.Equal(t, 5, n)
}
