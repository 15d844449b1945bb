package hashreentrant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A refusal names the holder's owner, whichever form the name has, and does not look
// for it in a hash that is too large to be a lock.
func TestRefusalNamesTheOwner(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	d, err := newDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	const id = "0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:"
	acquire := func(key, id, owner string) driver.Answer {
		a, err := d.Acquire(t.Context(), driver.Request{Claim: driver.Claim{Key: key, ID: id, Owner: owner, TTL: time.Minute}})
		require.NoError(t, err)
		return a
	}
	for name, owner := range map[string]string{
		"unnamed":           id + "1",
		"named":             "ann",
		"a long name":       strings.Repeat("a", 1024),
		"a name like an id": "0a1b2c3d-ffff-4000-8000-0a1b2c3d4e5f:1",
	} {
		require.True(t, acquire(name, id+"1", owner).Granted)
		require.Equal(t, owner, acquire(name, id+"9", id+"9").Owner, name)
		if owner != id+"1" {
			require.True(t, acquire(name, id+"2", owner).Granted, "another process of the owner joins")
			require.Equal(t, owner, acquire(name, id+"9", "bob").Owner, "%s, two claims", name)
			require.NoError(t, d.SetHolds(t.Context(), driver.Claim{Key: name, ID: id + "2", Owner: owner, TTL: time.Minute}, 7))
			require.Equal(t, owner, acquire(name, id+"9", "bob").Owner, "%s, many holds", name)
		}
	}
	for i := range 65 {
		require.NoError(t, rdb.HSet(t.Context(), "large", fmt.Sprint("field", i), i).Err())
	}
	require.Empty(t, acquire("large", id+"9", "bob").Owner)
}

// No command of a claim has anything of a hold that was granted later to an owner with
// the claim's name.
func TestOwnerNamedLikeAnotherClaim(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	d, err := newDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	const id = "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:"
	for name, other := range map[string]string{"unnamed": id + "1", "named": "ann"} {
		gone := driver.Claim{Key: name, ID: id + "1", Owner: other, TTL: time.Hour}
		holder := driver.Claim{Key: name, ID: id + "2", Owner: id + "1", TTL: time.Minute}
		for _, fencing := range []bool{true, false} {
			a, err := d.Acquire(t.Context(), driver.Request{Claim: holder, Fencing: fencing})
			require.NoError(t, err)
			require.True(t, a.Granted)
			fields := rdb.HGetAll(t.Context(), name).Val()
			for range 2 { // as it was taken, and as it was written back
				a, err = d.Acquire(t.Context(), driver.Request{Claim: gone, Fencing: fencing})
				require.NoError(t, err)
				require.False(t, a.Granted, "sent again")
				d.Renew(t.Context(), []driver.Claim{gone}, func(_ int, err error) { require.ErrorIs(t, err, driver.ErrLost) })
				require.ErrorIs(t, d.SetHolds(t.Context(), gone, 7), driver.ErrLost)
				require.ErrorIs(t, d.Release(t.Context(), gone), driver.ErrLost)
				require.LessOrEqual(t, rdb.PTTL(t.Context(), name).Val(), time.Minute)
				require.Equal(t, "1", rdb.HGet(t.Context(), name, id+"1").Val())
				require.Equal(t, fields[id+"2"], rdb.HGet(t.Context(), name, id+"2").Val())
				require.NoError(t, d.SetHolds(t.Context(), holder, 1))
			}
			require.NoError(t, d.Release(t.Context(), holder))
		}
	}
}

// The id of a holder shows whether its Locker takes turns. Earlier versions, Java and named owners take none.
func TestHoldersShowWhetherTheyTakeTurns(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	owner := func(l *locker.Client, err error) string {
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		lease, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		return lease.Owner()
	}
	require.True(t, takesTurns(owner(New(rdb))))
	require.False(t, takesTurns(owner(NewWithoutTurns(rdb))))
	for _, other := range []string{"6f1d2c3b-0000-4000-8000-0123456789ab:1", "6f1d2c3b-0000-47a1-8000-0123456789ab:1", "ann", "7a1-", ""} {
		require.False(t, takesTurns(other), other)
	}
}
