package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// rowOf locks the row of key in a transaction that nobody else has to do with.
func (s *server) rowOf(t *testing.T, key string) (end func() error) {
	t.Helper()
	tx := begin(t, s.pool(t, 1, ""))
	var hash []byte
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT hash FROM locker_locks WHERE hash = UNHEX(SHA2(?, 256)) FOR UPDATE`, key).Scan(&hash))
	return tx.Rollback
}

// A statement that the server has rolled back is sent again, and not for ever.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, 0, ""))
	cycle(t, l, "warm-up") // makes the table
	require.NoError(t, s.admin(ctx, `CREATE TRIGGER app.fail BEFORE INSERT ON app.locker_locks FOR EACH ROW
		SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'`))
	tries := func() (n int) {
		name := ""
		require.NoError(t, s.root.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Com_signal'`).Scan(&name, &n))
		return n
	}
	_, err := l.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.NotErrorIs(t, err, locker.ErrNotAcquired)
	require.ErrorContains(t, err, "Deadlock found")
	require.Equal(t, 10, tries())
	got := make(chan error, 1)
	go func() {
		lease, err := l.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	pace.Eventually(t, 20*time.Second, "Lock tries, too", func() bool { return tries() > 20 })
	require.NoError(t, s.admin(ctx, `DROP TRIGGER app.fail`))
	require.NoError(t, <-got)
}

// A row that somebody has locked is no refusal: what waits for it in vain was not applied, and is tried again.
func TestLockWaitTimeout(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 0, "?innodb_lock_wait_timeout=1")
	l, d := newLocker(t, db), lockmysql.NewDriver(db)
	defer d.Close()
	cycle(t, l, "k")
	end := s.rowOf(t, "k")
	_, err := d.Acquire(ctx, driver.Request{Claim: driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}})
	require.ErrorContains(t, err, "Lock wait timeout exceeded")
	require.False(t, driver.MaybeApplied(err))
	require.False(t, driver.IsPermanent(err))
	got := make(chan error, 1)
	go func() {
		lease, err := l.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	s.waitsForRow(t, 1)
	require.NoError(t, end())
	require.NoError(t, <-got)
}

// A row that somebody has locked holds up no renewal of another key.
func TestLockedRowIsPassedByInABatch(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := lockmysql.NewDriver(s.pool(t, 0, ""))
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
	require.NoError(t, s.admin(ctx, `UPDATE app.locker_locks SET expires = expires - 30000000 WHERE expires > 0`))
	end := s.rowOf(t, "b")
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
	var keys string
	require.NoError(t, s.ask(ctx, &keys, `SELECT GROUP_CONCAT(lock_key ORDER BY lock_key) FROM app.locker_locks WHERE expires > `+now+` + 40000000`))
	require.Equal(t, "a,d", keys)

	require.NoError(t, end())
	require.NoError(t, renew()[1])
	require.NoError(t, d.Release(ctx, claims[1]))
}

// Nor does the row of the only lock in a batch hold up permits.
func TestLockedRowHoldsUpNoPermits(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := lockmysql.NewDriver(s.pool(t, 0, ""))
	defer d.Close()
	claims := []driver.Claim{{Key: "a", ID: "l", Owner: "o", TTL: time.Minute}, {Key: "b", ID: "p", Owner: "o", TTL: time.Minute, Permits: 1, Limit: 2}}
	for _, c := range claims {
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
		require.NoError(t, err)
		require.True(t, a.Granted)
	}
	require.NoError(t, s.admin(ctx, `UPDATE app.locker_locks SET expires = expires - 30000000 WHERE lock_key = 'a'`))
	end := s.rowOf(t, "a")
	got := make([]error, len(claims))
	renew := func() { d.Renew(ctx, claims, func(i int, err error) { got[i] = err }) }
	renew()
	require.ErrorContains(t, got[0], "locked by another transaction")
	require.NoError(t, got[1])
	require.NoError(t, end())
	renew()
	require.NoError(t, got[0])
}

// A command whose connection is killed may have been applied.
func TestKilledCommand(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 0, "")
	cycle(t, newLocker(t, db), "k")
	d := lockmysql.NewDriver(db)
	defer d.Close()
	c := driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}
	end := s.rowOf(t, "k")
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, driver.Request{Claim: c})
		done <- err
	}()
	s.waitsForRow(t, 1)
	id := 0
	require.NoError(t, s.ask(ctx, &id, `SELECT id FROM information_schema.processlist WHERE user = 'app' AND command = 'Query'`))
	require.NoError(t, s.admin(ctx, fmt.Sprint(`KILL `, id)))
	err := <-done
	require.Error(t, err)
	require.True(t, driver.MaybeApplied(err))
	require.False(t, driver.IsPermanent(err))
	require.NoError(t, end())
	require.ErrorIs(t, d.Release(ctx, c), driver.ErrLost)
}

// A command that the caller leaves ends soon, and is applied later or not at all.
func TestCancelledCommand(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	d := lockmysql.NewDriver(s.pool(t, 0, "?checkConnLiveness=false")) // so that the Release is sent
	defer d.Close()
	c := driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}
	_, err := d.Acquire(ctx, driver.Request{Claim: c})
	require.NoError(t, err)
	s.Freeze()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = d.Release(short, c)
	require.Error(t, err)
	require.True(t, driver.MaybeApplied(err))
	require.Less(t, time.Since(start), 2*time.Second)
	s.Thaw()
	if err := d.Release(ctx, c); err != nil {
		require.ErrorIs(t, err, driver.ErrLost, "the first one went through")
	}
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	cfg := config("app", "app")
	cfg.Net, cfg.Addr = "unix", t.TempDir()+"/nobody"
	db, err := openPool(cfg.FormatDSN(), 0)
	require.NoError(t, err)
	defer db.Close()
	d := lockmysql.NewDriver(db)
	defer d.Close()
	_, err = d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: "k", ID: "i", Owner: "i", TTL: time.Minute}})
	require.Error(t, err)
	require.False(t, driver.MaybeApplied(err))
	require.False(t, driver.IsPermanent(err))
}

// The server stands still for ten TTLs: the holder knows of its loss by its own clock, and what
// it sent meanwhile takes nothing from the next one.
func TestServerFrozenForTenTTLs(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	const ttl = 300 * time.Millisecond
	holder, next := newLocker(t, s.pool(t, 0, ""), locker.WithTTL(ttl)), newLocker(t, s.pool(t, 0, ""), locker.WithTTL(time.Minute))
	lease, err := holder.Lock(ctx, "k")
	require.NoError(t, err)
	s.Freeze()
	got := make(chan *locker.Lease, 1)
	go func() {
		defer close(got)
		if l, err := next.Lock(ctx, "k"); err == nil {
			got <- l
		} else {
			t.Error(err)
		}
	}()
	<-lease.Lost()
	time.Sleep(9 * ttl) // the fault: the server stands still for ten TTLs
	require.Empty(t, got)
	s.Thaw()
	second := <-got
	require.NotNil(t, second)
	require.Greater(t, second.Token(), lease.Token())
	require.ErrorIs(t, lease.Renew(ctx), locker.ErrLost)
	require.ErrorIs(t, lease.Unlock(ctx), locker.ErrLost)
	require.NoError(t, second.Renew(ctx))
	require.NoError(t, second.Unlock(ctx))
}

// With one connection, and waiters on many keys, renewals and releases go through.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	one, other := newLocker(t, s.pool(t, 1, ""), locker.WithTTL(5*time.Second)), newLocker(t, s.pool(t, 1, ""))
	var leases []*locker.Lease
	var waiters sync.WaitGroup
	for i := range 100 {
		key := fmt.Sprint(i)
		lease, err := one.Lock(ctx, key)
		require.NoError(t, err)
		leases = append(leases, lease)
		waiters.Go(func() {
			lease, err := other.Lock(ctx, key)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, lease := range leases {
		require.NoError(t, lease.Renew(ctx))
		require.NoError(t, lease.Unlock(ctx))
	}
	waiters.Wait()
}

// A pool without a limit is no reason to use up the server's connections.
func TestPoolWithoutLimit(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	l := newLocker(t, s.pool(t, 0, ""))
	var callers sync.WaitGroup
	for i := range 500 {
		callers.Go(func() {
			lease, err := l.Lock(ctx, fmt.Sprint(i))
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	var name string
	n := 0
	require.NoError(t, s.root.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Max_used_connections'`).Scan(&name, &n))
	require.LessOrEqual(t, n, 16+32+1, "attempts, the others, and this question")
}

// The server's clock is the only one: a lease ends early when it goes ahead, and late when it goes
// back, and tokens grow.
func TestServerClock(t *testing.T) {
	t.Parallel()
	s, err := newServer()
	require.NoError(t, err)
	s.withClock(t)
	require.NoError(t, s.start())
	t.Cleanup(s.stop)
	ctx := t.Context()
	a, b := newLocker(t, s.pool(t, 0, ""), locker.WithTTL(time.Hour)), newLocker(t, s.pool(t, 0, ""))
	first, err := a.Lock(ctx, "k")
	require.NoError(t, err)
	s.setClock(t, 2*time.Hour)
	second, err := b.Lock(ctx, "k")
	require.NoError(t, err, "the lease is over by the server's clock")
	require.Greater(t, second.Token(), first.Token()+int64(time.Hour/time.Microsecond))
	require.ErrorIs(t, first.Renew(ctx), locker.ErrLost)

	s.setClock(t, 0)
	require.NoError(t, second.Renew(ctx))
	h, err := b.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, h.Remaining, time.Hour)
	_, err = a.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, second.Unlock(ctx))
	third, err := a.TryLock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, third.Token(), second.Token(), "the counter is ahead of the clock")
	require.NoError(t, third.Unlock(ctx))
	pace.Eventually(t, 30*time.Second, "the row is kept while its token is ahead of the clock", func() bool {
		n := 0
		cycle(t, a, "other")
		require.NoError(t, s.ask(ctx, &n, `SELECT COUNT(*) FROM app.locker_locks WHERE lock_key = 'k' AND forget > last_token`))
		return n == 1
	})
}
