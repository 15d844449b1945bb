package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// rowsRead returns how many rows the server has read, those of temporary tables included.
func (s *server) rowsRead(t *testing.T) (n float64) {
	t.Helper()
	rows, err := s.root.QueryContext(t.Context(), `SHOW GLOBAL STATUS LIKE 'Handler\_read\_%'`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		require.NoError(t, rows.Scan(&name, &value))
		n += value
	}
	require.NoError(t, rows.Err())
	return n
}

// No statement reads through the table, be it small or large when its plan is made.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{200, 5000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			t.Parallel()
			s, ctx := startServer(t), t.Context()
			s.makeTable(t)
			s.fill(t, rows)
			d := lockmysql.NewDriver(s.pool(t, 1, ""))
			defer d.Close()
			var claims []driver.Claim
			for i := range 256 {
				claims = append(claims, driver.Claim{Key: fmt.Sprint(i), ID: fmt.Sprint("id", i), Owner: "o", TTL: time.Minute})
			}
			reads := func(what string, most float64, f func()) {
				t.Helper()
				first := s.rowsRead(t)
				second := s.rowsRead(t)
				f()
				n := s.rowsRead(t) - second - (second - first) // to ask reads rows, too
				require.LessOrEqual(t, n, most+20, "%s of %d rows", what, rows)
			}
			reads("attempts", 2*256, func() {
				for _, c := range claims {
					a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
					require.NoError(t, err)
					require.True(t, a.Granted)
				}
			})
			reads("a batch", 6*256, func() {
				d.Renew(ctx, claims, func(_ int, err error) { require.NoError(t, err) })
			})
			reads("a renewal", 2, func() {
				d.Renew(ctx, claims[:1], func(_ int, err error) { require.NoError(t, err) })
			})
			reads("a look", 2, func() {
				h, err := d.(driver.Inspector).Inspect(ctx, "7")
				require.NoError(t, err)
				require.True(t, h.Held)
			})
			reads("releases", 8*256, func() { // with sweeps, which look at the oldest rows
				for _, c := range claims {
					require.NoError(t, d.Release(ctx, c))
				}
			})
			reads("a batch of lost claims", 6*256, func() {
				d.Renew(ctx, claims, func(_ int, err error) { require.ErrorIs(t, err, driver.ErrLost) })
			})
			_, err := s.root.ExecContext(ctx, `UPDATE app.locker_locks SET forget = 1 WHERE expires = 0`)
			require.NoError(t, err)
			reads("a sweep", 7*100, func() {
				done, err := s.pool(t, 1, "").ExecContext(ctx, lockmysql.Sweep())
				require.NoError(t, err)
				n, err := done.RowsAffected()
				require.NoError(t, err)
				require.EqualValues(t, 100, n)
			})
		})
	}
}

// fill adds rows of locks that are held.
func (s *server) fill(t *testing.T, rows int) {
	t.Helper()
	for range rows / 100 {
		require.NoError(t, s.admin(t.Context(), `INSERT INTO app.locker_locks (hash, lock_key, id, expires, forget)
			SELECT UNHEX(SHA2(UUID(), 256)), 'k', 'i', 2 * `+now+`, 2 * `+now+` FROM (SELECT 1 FROM information_schema.collations LIMIT 100) AS some`))
	}
}
