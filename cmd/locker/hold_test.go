//go:build unix

package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

// TestHold: the lock is held until standard input ends or a signal arrives.
func TestHold(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for _, how := range []string{"stdin", "TERM"} {
		cmd, stdin := command(t, url, "hold", "k"), io.WriteCloser(nil)
		var err error
		stdin, err = cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		token := make([]byte, 17)
		_, err = io.ReadFull(out, token)
		require.NoError(t, err)
		n, err := strconv.ParseInt(strings.TrimSpace(string(token)), 10, 64)
		require.NoError(t, err)
		require.Positive(t, n)
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		if how == "stdin" {
			require.NoError(t, stdin.Close())
		} else {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
		require.Equal(t, 0, cmd.code(t), cmd.stderr)
		free(t, l, "k")
	}
}

// TestHoldEnds: a lock that cannot be had, or is lost, has its code.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	s, l, url := server(t)
	lease, err := l.Lock(t.Context(), "taken")
	require.NoError(t, err)
	defer func() { require.NoError(t, lease.Unlock(context.Background())) }()
	open, end := io.Pipe()
	defer end.Close()
	_, stderr := runs(t, exitNotAcquired, open, "hold", "--url", url, "--wait", "0", "taken")
	require.Contains(t, stderr, "taken")
	_, stderr = runs(t, exitNotAcquired, strings.NewReader(""), "hold", "--url", url, "taken")
	require.Contains(t, stderr, "standard input ended")
	_, stderr = runs(t, exitUsage, open, "hold", "--url", url, "--ttl", "1ms", "k")
	require.Contains(t, stderr, "--ttl=1ms: 100ms to 24h")
	runs(t, exitUnavailable, open, "hold", "--url", "setnx+redis://127.0.0.1:1", "--wait", "0", "k")

	cmd := command(t, url, "hold", "--ttl", "1s", "k")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 64))
	require.NoError(t, err)
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "another's", time.Minute).Err())
	require.Equal(t, exitLost, cmd.code(t))
	require.Contains(t, cmd.stderr.String(), "was lost")
}

// TestHoldUnread: the lock is given back although nobody reads the token any more.
func TestHoldUnread(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	cmd := command(t, url, "hold", "k")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, cmd.Start())
	defer stdin.Close()
	require.Equal(t, exitNone, cmd.code(t), cmd.stderr)
	require.Contains(t, cmd.stderr.String(), "broken pipe")
	free(t, l, "k")
}
