package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// At every isolation level statements go on beside one another: attempts on new and old keys,
// renewals of several, releases, and sweeps, which here delete every free row at once. Two attempts at a row that
// is being deleted may wait for each other (at REPEATABLE READ the gap that it leaves is locked): the
// server rolls one back, and it is sent again. Every token is greater than the one before.
func TestBesideOneAnother(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--transaction-isolation="+isolation)
			s.makeTable(t)
			db := s.pool(t, 24, "")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var all sync.WaitGroup
			var granted tokenLog
			for g := range 8 {
				d := lockmysql.NewDriver(db)
				all.Go(func() {
					for n := 0; ctx.Err() == nil && claimAndRelease(t, d, &granted, fmt.Sprint(g, "-", n)); n++ {
					}
				})
			}
			var sweeps atomic.Int64
			for range 2 {
				all.Go(func() {
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					for ctx.Err() == nil {
						if _, err := lockmysql.Exec(t.Context(), conn, lockmysql.SweepAll()); err != nil {
							t.Error(err)
							return
						}
						sweeps.Add(1)
					}
				})
			}
			all.Wait()
			t.Logf("%d grants, %d sweeps", granted.n, sweeps.Load())
			require.Positive(t, granted.n)
			require.Positive(t, sweeps.Load())
		})
	}
}

// A tokenLog knows the last token of each key.
type tokenLog struct {
	mu   sync.Mutex
	n    int
	last map[string]int64
}

// granted fails if the tokens of a do not follow the ones before.
func (l *tokenLog) granted(t *testing.T, key string, a driver.Answer) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; a.Token <= l.last[key] {
		t.Errorf("token %d after %d", a.Token, l.last[key])
	}
	if l.last == nil {
		l.last = make(map[string]int64)
	}
	l.last[key] = a.Token + int64(a.Tokens) - 1
}

// claimAndRelease claims some keys, renews what it has got as a batch, and releases it.
func claimAndRelease(t *testing.T, d driver.Driver, log *tokenLog, id string) bool {
	t.Helper()
	var claims []driver.Claim
	for _, k := range rand.Perm(20)[:8] {
		c := driver.Claim{Key: fmt.Sprint(k), ID: id, Owner: "o", TTL: time.Minute}
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Tokens: 1 + rand.IntN(32)})
		if err != nil {
			t.Error(err)
			return false
		}
		if a.Granted {
			log.granted(t, c.Key, a)
			claims = append(claims, c)
		}
	}
	d.Renew(t.Context(), claims, func(_ int, err error) {
		if err != nil && !strings.Contains(err.Error(), "locked by another transaction") {
			t.Error(err)
		}
	})
	for _, c := range claims {
		if err := d.Release(t.Context(), c); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	return true
}
