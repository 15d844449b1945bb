package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// Settings of the sessions change nothing.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	isolation := "tx_isolation"
	if !s.isMariaDB() {
		isolation = "transaction_isolation"
	}
	settings := []string{
		isolation + "='READ-UNCOMMITTED'", isolation + "='READ-COMMITTED'", isolation + "='SERIALIZABLE'",
		"sql_mode=''", "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "sql_mode='TRADITIONAL,ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION'", "sql_mode='HIGH_NOT_PRECEDENCE'",
		"time_zone='+05:45'", "clientFoundRows=true", "interpolateParams=true", "parseTime=true", "charset=latin1", "charset=gbk", "collation=utf8mb4_bin",
	}
	if s.isMariaDB() {
		settings = append(settings, "sql_mode='SIMULTANEOUS_ASSIGNMENT'", "sql_mode='EMPTY_STRING_IS_NULL'")
	}
	var all sync.WaitGroup
	for i, set := range settings {
		all.Go(func() {
			name, value, _ := strings.Cut(set, "=")
			params := "?" + name + "=" + url.QueryEscape(value)
			renewsABatch(t, s.pool(t, 0, params), set)
			keepsPermits(t, newLocker(t, s.pool(t, 0, params), lockmysql.WithTable(fmt.Sprint("locks", i))), set)
			a, b := newLocker(t, s.pool(t, 0, params)), newLocker(t, s.pool(t, 0, params))
			must := func(err error) bool { return assertNoError(t, err, set) }
			for _, ttl := range []time.Duration{locker.MinTTL, time.Minute} { // the first one expires
				lease, err := a.Lock(ctx, "k"+set, locker.WithTTL(ttl), locker.WithoutRenewal())
				if !must(err) {
					return
				}
				other, err := a.Lock(ctx, "other"+set)
				if !must(err) || !must(other.Renew(ctx)) {
					return
				}
				if ttl == time.Minute {
					if _, err = b.TryLock(ctx, "k"+set); !assertNotAcquired(t, err, set) {
						return
					}
					h, err := b.Inspect(ctx, "k"+set)
					must(err)
					if time.Since(h.Since).Abs() > time.Minute || h.Owner != lease.Owner() {
						t.Errorf("%s: %+v", set, h)
					}
					must(lease.Renew(ctx))
					must(lease.Unlock(ctx))
				}
				next, err := b.Lock(ctx, "k"+set)
				if !must(err) {
					return
				}
				if next.Token() <= lease.Token() {
					t.Errorf("%s: token %d after %d", set, next.Token(), lease.Token())
				}
				must(next.Renew(ctx))
				must(next.Unlock(ctx))
				must(other.Unlock(ctx))
			}
		})
	}
	all.Wait()
}

func renewsABatch(t *testing.T, db *sql.DB, set string) {
	t.Helper()
	d := lockmysql.NewDriver(db)
	defer d.Close()
	var claims []driver.Claim
	for i := range 3 {
		c := driver.Claim{Key: fmt.Sprint("batch ", set, i), ID: "i", Owner: "o", TTL: time.Minute}
		if _, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true}); !assertNoError(t, err, set) {
			return
		}
		claims = append(claims, c)
	}
	d.Renew(t.Context(), claims, func(_ int, err error) { assertNoError(t, err, set) })
	assertNoError(t, d.Release(t.Context(), claims[0]), set)
	d.Renew(t.Context(), claims, func(i int, err error) {
		if (i == 0) != errors.Is(err, driver.ErrLost) || i > 0 && err != nil {
			t.Errorf("%s: claim %d: %v", set, i, err)
		}
	})
}

// keepsPermits has tables of its own, which a session with these settings makes.
func keepsPermits(t *testing.T, l *locker.Client, set string) {
	t.Helper()
	ctx := t.Context()
	s, err := locker.NewSemaphore(l, "k", 2)
	if !assertNoError(t, err, set) {
		return
	}
	for range 2 { // the second time the rows are there
		lease, err := s.TryAcquire(ctx)
		if !assertNoError(t, err, set) {
			return
		}
		assertNoError(t, lease.Renew(ctx), set)
		_, err = l.TryLock(ctx, "k")
		assertNotAcquired(t, err, set)
		assertNoError(t, lease.Unlock(ctx), set)
		lock, err := l.TryLock(ctx, "k")
		if !assertNoError(t, err, set) {
			return
		}
		_, err = s.TryAcquire(ctx)
		assertNotAcquired(t, err, set)
		assertNoError(t, lock.Unlock(ctx), set)
	}
}

func assertNoError(t *testing.T, err error, set string) bool {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", set, err)
	}
	return err == nil
}

func assertNotAcquired(t *testing.T, err error, set string) bool {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), locker.ErrNotAcquired.Error()) {
		t.Errorf("%s: %v", set, err)
		return false
	}
	return true
}

// Where a grant could not be kept there is none.
func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	good := newLocker(t, s.pool(t, 0, ""))
	cycle(t, good, "old")
	for set, want := range map[string]string{"?autocommit=0": "autocommit = 1", "?sql_safe_updates=1": "sql_safe_updates = 0"} {
		bad := newLocker(t, s.pool(t, 0, set))
		for _, key := range []string{"new", "old"} {
			_, err := bad.Lock(ctx, key)
			require.ErrorIs(t, err, locker.ErrUnavailable)
			require.ErrorContains(t, err, want)
			cycle(t, good, key)
		}
		for _, key := range []string{"new permits", "full" + set} {
			if key != "new permits" {
				_, err := semaphore(t, good, key).Acquire(ctx)
				require.NoError(t, err)
			}
			_, err := semaphore(t, bad, key).TryAcquire(ctx)
			require.ErrorIs(t, err, locker.ErrUnavailable, "%s: %s", set, key)
			require.ErrorContains(t, err, want)
		}
	}
}

// A renewal or a release that could be undone later is none.
func TestChangesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	good := lockmysql.NewDriver(s.pool(t, 0, ""))
	defer good.Close()
	bad := lockmysql.NewDriver(s.pool(t, 0, "?autocommit=0"))
	defer bad.Close()
	var claims []driver.Claim
	for i, c := range []driver.Claim{{}, {}, {Permits: 1, Limit: 9}, {Permits: 1, Limit: 9}, {Permits: 2, Limit: 9}} {
		c.Key, c.ID, c.Owner, c.TTL = fmt.Sprint("k", i), fmt.Sprint("i", i), "o", time.Minute
		a, err := good.Acquire(ctx, driver.Request{Claim: c, Fencing: i%2 == 0})
		require.NoError(t, err)
		require.True(t, a.Granted)
		c.Token = a.Token
		claims = append(claims, c)
	}
	refused := func(what string, err error) {
		t.Helper()
		require.ErrorContains(t, err, "autocommit = 1", what)
		require.False(t, driver.MaybeApplied(err), what)
		require.NotErrorIs(t, err, driver.ErrLost, what)
	}
	d := bad
	renew := func(some ...driver.Claim) (errs []error) {
		errs = make([]error, len(some))
		d.Renew(ctx, some, func(i int, err error) { errs[i] = err })
		return errs
	}
	for _, err := range append(renew(claims...), renew(claims[:2]...)...) {
		refused("a batch", err)
	}
	for _, c := range claims {
		refused("renewal of "+c.Key, renew(c)[0])
		refused("release of "+c.Key, bad.Release(ctx, c))
	}
	d = good
	for _, err := range renew(claims...) {
		require.NoError(t, err)
	}
	for _, c := range claims {
		require.NoError(t, good.Release(ctx, c))
	}
}

func semaphore(t *testing.T, l *locker.Client, key string) *locker.Semaphore {
	t.Helper()
	s, err := locker.NewSemaphore(l, key, 1)
	require.NoError(t, err)
	return s
}
