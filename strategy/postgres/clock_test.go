package postgres_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/servers"
)

// clocked starts a server that reads a clock which setClock moves.
func clocked(t *testing.T) *server {
	t.Helper()
	made, err := servers.Postgres(quick...)
	require.NoError(t, err)
	s := &server{made}
	t.Cleanup(s.Stop)
	source, err := filepath.Abs("../../internal/test/redistest/clock/clock.c")
	require.NoError(t, err)
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	lib := filepath.Join(s.Dir, "clock.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", lib, source).CombinedOutput()
	require.NoError(t, err, "a server whose clock can be set needs Linux and a C compiler: %s", out)
	s.Env = []string{"LD_PRELOAD=" + lib, "LOCKER_CLOCK=" + filepath.Join(s.Dir, "clock")}
	s.setClock(t, 0)
	require.NoError(t, s.start())
	return s
}

// setClock makes the server's clock go ahead of the true one. It writes in place: the server has the file mapped.
func (s *server) setClock(t *testing.T, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.Dir, "clock"), os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	require.NoError(t, err)
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
