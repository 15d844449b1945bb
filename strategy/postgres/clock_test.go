package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/clock"
)

// clocked starts a server that reads a clock which setClock moves.
func clocked(t *testing.T) *server {
	t.Helper()
	made, err := servers.Postgres(quick...)
	require.NoError(t, err)
	s := &server{made}
	t.Cleanup(s.Stop)
	s.Env, err = clock.Environment(s.Dir)
	require.NoError(t, err)
	require.NoError(t, s.start())
	return s
}

func (s *server) setClock(t *testing.T, ahead time.Duration) {
	t.Helper()
	require.NoError(t, clock.Set(s.Dir, ahead))
}

// The server's clock is the only one: a lease ends early when it goes ahead, and late when it goes
// back, and tokens grow.
func TestServerClock(t *testing.T) {
	t.Parallel()
	s, ctx := clocked(t), t.Context()
	a, b := newLocker(t, s.pool(t, ""), locker.WithTTL(time.Hour)), newLocker(t, s.pool(t, ""))
	first, err := a.Lock(ctx, "k")
	require.NoError(t, err)
	s.setClock(t, 2*time.Hour)
	second, err := b.Lock(ctx, "k")
	require.NoError(t, err, "the lease is over by the server's clock")
	require.Greater(t, second.Token(), first.Token()+int64(time.Hour/time.Microsecond))
	require.ErrorIs(t, first.Renew(ctx), locker.ErrLost)

	s.setClock(t, 0)
	require.NoError(t, second.Renew(ctx))
	h, err := b.(*locker.Client).Inspect(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, h.Remaining, time.Hour)
	_, err = a.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, second.Unlock(ctx))
	third, err := a.TryLock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, third.Token(), second.Token(), "the counter is ahead of the clock")
	require.NoError(t, third.Unlock(ctx))
}
