package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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
			var mu sync.Mutex
			last := make(map[string]int64) // by key
			sweeps, grants := 0, 0
			for g := range 8 {
				d := lockmysql.NewDriver(db)
				all.Go(func() { // claims keys, renews what it has got as a batch, and releases it
					for n := 0; ctx.Err() == nil; n++ {
						var claims []driver.Claim
						for _, k := range rand.Perm(20)[:8] {
							c := driver.Claim{Key: fmt.Sprint(k), ID: fmt.Sprint(g, "-", n), Owner: "o", TTL: time.Minute}
							a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Tokens: 1 + rand.IntN(32)})
							if err != nil {
								t.Error(err)
								return
							}
							if a.Granted {
								mu.Lock()
								if grants++; a.Token <= last[c.Key] {
									t.Errorf("token %d after %d", a.Token, last[c.Key])
								}
								last[c.Key] = a.Token + int64(a.Tokens) - 1
								mu.Unlock()
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
					}
				})
			}
			for range 2 {
				all.Go(func() {
					for ctx.Err() == nil {
						if _, err := db.ExecContext(t.Context(), lockmysql.SweepAll()); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						sweeps++
						mu.Unlock()
					}
				})
			}
			all.Wait()
			t.Logf("%d grants, %d sweeps", grants, sweeps)
			require.Positive(t, grants)
			require.Positive(t, sweeps)
		})
	}
}
