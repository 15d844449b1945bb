package strategies

import (
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/require"
)

// A lock that a release has granted for 2 s, and that LetExpire leaves at once, stays for its TTL.
func TestLetExpireOfAGrantByARelease(t *testing.T) {
	redistest.NeedsBLPOP(t)
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for round := 0; ; round++ {
		require.Less(t, round, 20, "the process always stands still for 2 s after the grant")
		other, err := blpop.New(rdb)
		require.NoError(t, err)
		l, err := blpop.New(rdb)
		require.NoError(t, err)
		held, err := other.Lock(t.Context(), "k")
		require.NoError(t, err)
		waiting := locker.LockAsync(t.Context(), l, "k")
		defer waiting.Cancel()
		require.Eventually(t, func() bool { // else the attempt, and not the release, would grant it
			h, err := other.Inspect(t.Context(), "k")
			return err == nil && h.Waiting > 0
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		lease, err := waiting.Lease()
		require.NoError(t, err)
		short := time.Until(lease.Deadline()) <= 2*time.Second
		err = lease.LetExpire()
		require.NoError(t, l.Close(), "it waits for what goes on in the background")
		require.NoError(t, other.Close())
		if short && err == nil {
			break
		}
		require.True(t, err == nil || errors.Is(err, locker.ErrLost), "%v", err) // the process stood still
		rdb.Del(t.Context(), "k")
	}
	require.Greater(t, rdb.PTTL(t.Context(), "k").Val(), locker.DefaultTTL/2)
}
