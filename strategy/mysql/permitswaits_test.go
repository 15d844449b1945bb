package mysql_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// An attempt that waits for the head judges what is there after the wait: nothing from before it grants too much,
// or hides the claim's own permits.
func TestPermitsAfterAWait(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 16, "")
	d := lockmysql.NewDriver(db)
	defer d.Close()
	require.True(t, takePermits(t, d, permitsOf(idOf(1), time.Minute, 1, 3)).Granted)
	for round := range 5 {
		tx := begin(t, db)
		_, err := tx.ExecContext(ctx, `SELECT hash FROM `+table+` FOR UPDATE`)
		require.NoError(t, err)
		mine, other := permitsOf(ofOther(round), time.Minute, 2, 3), permitsOf(ofThird(round), time.Minute, 2, 3)
		granted := make([]bool, 3)
		var all sync.WaitGroup
		for i, c := range []driver.Claim{mine, mine, other} {
			all.Go(func() {
				a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
				if err != nil {
					t.Error(err)
				}
				granted[i] = a.Granted
			})
		}
		s.waitsForRow(t, 3)
		require.NoError(t, tx.Rollback())
		all.Wait()
		require.Equal(t, 3, out(t, d), "two permits were free")
		require.Equal(t, granted[0], granted[1], "one claim is granted and refused")
		require.NotEqual(t, granted[0], granted[2], "one of two claims gets the two permits")
		c := mine
		if granted[2] {
			c = other
		}
		require.NoError(t, d.Release(ctx, c))
		require.Equal(t, 1, out(t, d))
	}
}

// A claim that seemed to have ended, and was renewed before it could be forgotten, keeps its permits.
func TestRenewedClaimIsNotForgotten(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	db := s.pool(t, 16, "")
	d := lockmysql.NewDriver(db)
	defer d.Close()
	dead, late := permitsOf(idOf(1), time.Minute, 1, 3), permitsOf(idOf(2), time.Minute, 1, 3)
	require.True(t, takePermits(t, d, dead).Granted)
	require.True(t, takePermits(t, d, late).Granted)
	require.NoError(t, s.admin(ctx, `UPDATE `+permitsTable+` SET expires = `+now+` - 1000`))
	tx := begin(t, db)
	// By its primary key, so that no other row is locked.
	_, err := tx.ExecContext(ctx, `UPDATE `+permitsTable+` SET expires = `+now+` + 60000000 WHERE hash = UNHEX(SHA2('k', 256)) AND claim = UNHEX(SHA2('`+late.ID+`', 256))`)
	require.NoError(t, err)
	done := make(chan driver.Answer, 1)
	go func() {
		a, err := d.Acquire(ctx, driver.Request{Claim: permitsOf(ofOther(1), time.Minute, 3, 3), Fencing: true})
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	s.waitsForRow(t, 1)
	require.NoError(t, tx.Commit())
	require.False(t, (<-done).Granted, "one permit is out")
	require.Equal(t, 1, out(t, d))
	require.False(t, takePermits(t, d, permitsOf(ofOther(2), time.Minute, 3, 3)).Granted)
	require.True(t, takePermits(t, d, permitsOf(ofOther(3), time.Minute, 2, 3)).Granted)
	d.Renew(ctx, []driver.Claim{late}, func(_ int, err error) { require.NoError(t, err) })
	require.NoError(t, d.Release(ctx, late))
}
