package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

// The SQL of the package comment: a transaction and the Lockers exclude each other.
func TestApplicationsExclude(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, ""))
	const key = "orders/42"
	begin := func() (tx pgx.Tx, granted bool) {
		conn, err := s.connect(ctx, "app", "app")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err = conn.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `INSERT INTO public.locker_locks (key) VALUES (convert_to($1, 'UTF8')) ON CONFLICT DO NOTHING`, key)
		require.NoError(t, err)
		err = tx.QueryRow(ctx, `SELECT FROM public.locker_locks
			WHERE hash = sha256(convert_to($1, 'UTF8')) AND expires <= clock_timestamp() FOR UPDATE`, key).Scan()
		if !errors.Is(err, pgx.ErrNoRows) {
			require.NoError(t, err)
		}
		_, failed := tx.Exec(ctx, `SELECT pg_notify('locker_released', encode(sha256(convert_to($1, 'UTF8')), 'hex'))`, key)
		require.NoError(t, failed)
		return tx, err == nil
	}
	other, err := l.Lock(ctx, "other") // makes the table
	require.NoError(t, err)

	for _, row := range []string{"new in the transaction", "there before"} {
		tx, granted := begin()
		require.True(t, granted, row)
		start := time.Now()
		_, err = l.TryLock(ctx, key)
		require.ErrorIs(t, err, locker.ErrNotAcquired, row)
		require.Less(t, time.Since(start), 2*time.Second, "Lock does not wait for a row")
		require.NoError(t, other.Renew(ctx), "another key is not locked")

		waited := make(chan error, 1)
		waiting := newWaiting()
		w := newLocker(t, s.pool(t, ""), locker.WithObserver(waiting))
		go func() {
			lease, err := w.Lock(ctx, key)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			waited <- err
		}()
		<-waiting.c
		require.NoError(t, tx.Commit(ctx))
		require.NoError(t, <-waited, row)
	}

	lease, err := l.Lock(ctx, key)
	require.NoError(t, err)
	tx, granted := begin()
	require.False(t, granted, "a Locker holds the key")
	require.NoError(t, lease.Renew(ctx), "the transaction has not locked the row")
	require.NoError(t, tx.Rollback(ctx))
	require.NoError(t, lease.Unlock(ctx))
	require.NoError(t, other.Unlock(ctx))
}

// The row of the only lock in a batch that also has permits is passed by, too.
func TestLockedRowHoldsUpNoPermits(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	claims := []driver.Claim{{Key: "a", ID: "l", Owner: "o", TTL: time.Minute}, {Key: "b", ID: "p", Owner: "o", TTL: time.Minute, Permits: 1, Limit: 2}}
	for _, c := range claims {
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
		require.NoError(t, err)
		require.True(t, a.Granted)
	}
	end := permitStore{s}.Lock(t, `SELECT FROM `+table+` WHERE key = 'a' FOR UPDATE`)
	got := make([]error, len(claims))
	renew := func() { d.Renew(ctx, claims, func(i int, err error) { got[i] = err }) }
	renew()
	require.ErrorContains(t, got[0], "the row is locked by another transaction")
	require.NoError(t, got[1])
	end()
	renew()
	require.NoError(t, got[0])
}

// A row that an application has locked holds up no renewal of another key.
func TestLockedRowIsPassedByInABatch(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := postgres.NewDriver(s.pool(t, ""))
	defer d.Close()
	var claims []driver.Claim
	for _, key := range []string{"a", "b", "c", "d"} {
		c := driver.Claim{Key: key, ID: "id of " + key, Owner: "o", TTL: time.Minute}
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: key != "d"})
		require.NoError(t, err)
		require.True(t, a.Granted)
		claims = append(claims, c)
	}
	require.NoError(t, d.Release(ctx, claims[2]))
	conn, err := s.connect(ctx, "app", "app")
	require.NoError(t, err)
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `SELECT FROM public.locker_locks WHERE key = 'b' FOR UPDATE`)
	require.NoError(t, err)

	renew := func() []error {
		answers := make([]error, len(claims))
		d.Renew(ctx, claims, func(i int, err error) { answers[i] = err })
		return answers
	}
	got := renew()
	require.NoError(t, got[0])
	require.ErrorContains(t, got[1], "locked by another transaction")
	require.NotErrorIs(t, got[1], driver.ErrLost)
	require.False(t, driver.MaybeApplied(got[1]))
	require.ErrorIs(t, got[2], driver.ErrLost)
	require.NoError(t, got[3])
	err = d.Release(ctx, claims[1])
	require.Error(t, err)
	require.NotErrorIs(t, err, driver.ErrLost)
	require.False(t, driver.MaybeApplied(err))
	require.False(t, driver.IsPermanent(err))

	require.NoError(t, tx.Rollback(ctx))
	require.NoError(t, renew()[1])
	require.NoError(t, d.Release(ctx, claims[1]))
}
