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
		"sql_mode=''", "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "sql_mode='TRADITIONAL,ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION'",
		"time_zone='+05:45'", "clientFoundRows=true", "interpolateParams=true", "parseTime=true", "charset=latin1", "charset=gbk", "collation=utf8mb4_bin",
	}
	if s.isMariaDB() {
		settings = append(settings, "sql_mode='SIMULTANEOUS_ASSIGNMENT'")
	}
	var all sync.WaitGroup
	for _, set := range settings {
		all.Go(func() {
			name, value, _ := strings.Cut(set, "=")
			params := "?" + name + "=" + url.QueryEscape(value)
			renewsABatch(t, s.pool(t, 0, params), set)
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

func semaphore(t *testing.T, l *locker.Client, key string) *locker.Semaphore {
	t.Helper()
	s, err := locker.NewSemaphore(l, key, 1)
	require.NoError(t, err)
	return s
}
