package mysql_test

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
)

// Settings of the sessions change nothing.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	isolation := "tx_isolation"
	version := ""
	require.NoError(t, s.ask(ctx, &version, `SELECT VERSION()`))
	if !strings.Contains(version, "MariaDB") {
		isolation = "transaction_isolation"
	}
	settings := []string{
		isolation + "='READ-UNCOMMITTED'", isolation + "='READ-COMMITTED'", isolation + "='SERIALIZABLE'",
		"sql_mode=''", "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "sql_mode='TRADITIONAL,ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION'",
		"time_zone='+05:45'", "clientFoundRows=true", "interpolateParams=true", "parseTime=true", "charset=latin1", "charset=gbk", "collation=utf8mb4_bin",
	}
	if strings.Contains(version, "MariaDB") {
		settings = append(settings, "sql_mode='SIMULTANEOUS_ASSIGNMENT'")
	}
	var all sync.WaitGroup
	for _, set := range settings {
		all.Go(func() {
			name, value, _ := strings.Cut(set, "=")
			params := "?" + name + "=" + url.QueryEscape(value)
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

// Without autocommit a grant would be undone with its connection: there is none.
func TestAutocommitIsNeeded(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	good := newLocker(t, s.pool(t, 0, ""))
	cycle(t, good, "old")
	bad := newLocker(t, s.pool(t, 0, "?autocommit=0"))
	for _, key := range []string{"new", "old"} {
		_, err := bad.Lock(ctx, key)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.ErrorContains(t, err, "autocommit = 1")
		cycle(t, good, key)
	}
}
