package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/strategy/postgres"
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
	d := postgres.NewDriver(startServer(t).pool(t, "&pool_max_conns=16"))
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

// An attempt that waits for the key's row judges what is there after the wait: its snapshot from before
// neither grants too much nor hides the claim's own permits.
func TestPermitsAfterAWait(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, "&pool_max_conns=8"))
	defer d.Close()
	require.True(t, takePermits(t, d, permitsOf(idOf(1), time.Minute, 1, 3)).Granted)
	conn, err := s.connect(ctx, "app", "app")
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	waited := 0
	for round := 0; waited < 5; round++ {
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `SELECT FROM `+table+` FOR UPDATE`)
		require.NoError(t, err)
		mine, other := permitsOf(ofOther(round), time.Minute, 2, 3), permitsOf(ofThird(round), time.Minute, 2, 3)
		granted, late, answered := make([]bool, 3), make([]bool, 3), make(chan struct{}, 3)
		var all sync.WaitGroup
		for i, c := range []driver.Claim{mine, mine, other} {
			all.Go(func() {
				a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
				if err != nil {
					t.Error(err)
				}
				granted[i], late[i] = a.Granted, !a.Granted && a.Remaining == 0 // it has waited for the row for too long
				answered <- struct{}{}
			})
		}
		wait := 0
		pace.Eventually(t, 20*time.Second, "all wait for the row, or have waited too long", func() bool {
			require.NoError(t, s.ask(ctx, &wait, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`))
			return wait+len(answered) == 3
		})
		require.NoError(t, tx.Rollback(ctx))
		all.Wait()
		want := 1
		for _, c := range []driver.Claim{mine, other} {
			if err := d.Release(ctx, c); err == nil {
				want += 2
			} else {
				require.ErrorIs(t, err, driver.ErrLost)
			}
		}
		require.LessOrEqual(t, want, 3, "only two permits were free")
		require.Equal(t, 1, out(t, d))
		require.False(t, granted[2] && (granted[0] || granted[1]), "both claims were granted two")
		if wait == 3 && !late[0] && !late[1] && !late[2] {
			waited++
			require.True(t, granted[2] || granted[0], "two permits were free")
			require.Equal(t, granted[0], granted[1], "one claim is granted and refused")
		}
	}
}

// Without tokens the permits are kept, too.
func TestPermitsWithoutFencing(t *testing.T) {
	t.Parallel()
	d := postgres.NewDriver(startServer(t).pool(t, ""))
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

// Without a wake-up waiters look once a second.
func TestPermitsWakeWaiters(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	waits := newWaiting()
	a, b := newLocker(t, s.pool(t, "")), newLocker(t, s.pool(t, ""), locker.WithObserver(waits))
	semA, err := locker.NewSemaphore(a, "k", 1)
	require.NoError(t, err)
	semB, err := locker.NewSemaphore(b, "k", 1)
	require.NoError(t, err)
	lease, err := semA.Acquire(t.Context())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		next, err := semB.Acquire(t.Context())
		if err == nil {
			err = next.Unlock(t.Context())
		}
		done <- err
	}()
	<-waits.c
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-done)
}

// Inspect shows how many are out, and Permits who has them; ForceUnlock takes those of one claim.
func TestInspectPermits(t *testing.T) {
	t.Parallel()
	l := newLocker(t, startServer(t).pool(t, ""), locker.WithPrefix("app:")).(*locker.Client)
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
	require.Equal(t, []any{195, 200, "", "postgres"}, []any{h.Permits, h.Limit, h.ID, h.Strategy})
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

// With a schema from before permits their error names what is missing and what to do. Locks work as before.
func TestPermitsNeedTheirTable(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	schema, err := postgres.Schema(table)
	require.NoError(t, err)
	conn, err := s.connect(ctx, "postgres", "app")
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{
		schema, `DROP TABLE ` + permitsTable, `CREATE ROLE weak LOGIN`, `REVOKE CREATE ON SCHEMA public FROM public`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ` + table + ` TO weak`,
	} {
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		require.NoError(t, err)
	}
	l := newLocker(t, newPool(t, s.url("weak", "app")))
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
	sem, err := locker.NewSemaphore(l, "k", 2)
	require.NoError(t, err)
	_, err = sem.Acquire(ctx)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, `"public"."locker_locks_permits" does not exist`)
	require.ErrorContains(t, err, "postgres.Schema")

	_, err = conn.PgConn().Exec(ctx, schema+`GRANT SELECT, INSERT, UPDATE, DELETE ON `+permitsTable+` TO weak`).ReadAll()
	require.NoError(t, err)
	lease, err = sem.Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))

	_, err = conn.Exec(ctx, `ALTER TABLE `+permitsTable+` RENAME COLUMN era TO epoch`)
	require.NoError(t, err)
	_, err = sem.Acquire(ctx)
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "postgres.Schema")
}

// The table of permits has a name of its own, however long that of the keys is.
func TestPermitsOfLongNames(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, name := range []string{strings.Repeat("x", 55), strings.Repeat("x", 56), strings.Repeat("x", 63), "public." + strings.Repeat("y", 63)} {
		l := newLocker(t, s.pool(t, ""), postgres.WithTable(name))
		sem, err := locker.NewSemaphore(l, "k", 2)
		require.NoError(t, err)
		for _, take := range []func(context.Context, ...locker.LockOption) (*locker.Lease, error){sem.Acquire, sem.Acquire} {
			_, err := take(t.Context())
			require.NoError(t, err, name)
		}
		_, err = sem.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrNotAcquired, name)
	}
	n := 0
	require.NoError(t, s.ask(t.Context(), &n, `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\_permits'`))
	require.Equal(t, 4, n)
}
