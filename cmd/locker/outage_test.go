//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// TestNotGivenBack: the reason why the lock could not be given back is printed, and the end of it is not
// waited for longer than it lasts.
func TestNotGivenBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(s *redistest.Server)
		ttl  time.Duration
		why  string // a regular expression
	}{
		"the server is gone":            {(*redistest.Server).Kill, 30 * time.Second, "redis.sock: connect: |it was not sent"},
		"the server hangs":              {(*redistest.Server).Pause, 30 * time.Second, "time"},
		"the server is gone, short TTL": {(*redistest.Server).Kill, 3 * time.Second, "the store did not answer"},
		"the server hangs, short TTL":   {(*redistest.Server).Pause, 3 * time.Second, "the store did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, url := server(t)
			cmd := command(t, url, "run", "--key", "k", "--ttl", c.ttl.String(), "--", "sh", "-c", "echo ready; read x; exit 3")
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			cmd.begin(t)
			c.harm(s)
			_, err = stdin.Write([]byte("\n"))
			require.NoError(t, err)
			begun := time.Now()
			require.Equal(t, 3, cmd.code(t), cmd.stderr)
			require.Less(t, time.Since(begun), c.ttl+3*time.Second, "an Unlock takes 5 s, and Close 2 s")
			said := cmd.stderr.String()
			require.Contains(t, said, "could not be given back")
			require.Regexp(t, c.why, said)
			require.NotContains(t, said, "nil")
			require.NotContains(t, said, "locker: locker:")
		})
	}
}

// TestSignalEndsTheRelease: once COMMAND has ended, a signal ends the wait for a store that does not answer.
func TestSignalEndsTheRelease(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	cmd := command(t, url, "run", "-v", "--key", "k", "--ttl", "1h", "--", "sh", "-c", "echo ready; echo $$; read x; exit 3")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.begin(t)
	var pid int
	_, err = fmt.Fscanln(cmd.stdout, &pid)
	require.NoError(t, err)
	s.Pause()
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	pace.Eventually(t, patience, "COMMAND has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	cmd.signalUntilItEnds(syscall.SIGTERM) // the first may still be for COMMAND
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), cmd.stderr)
	require.Contains(t, cmd.stderr.String(), "a signal ended the wait")
}

// TestVerboseInAnOutage: one line says that renewing fails, and one that it works again.
func TestVerboseInAnOutage(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	cmd := command(t, url, "run", "-v", "--key", "k", "--ttl", "9s", "--", "sh", "-c", "echo ready; read x")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.begin(t)
	s.Pause()
	says := func(what string) {
		pace.Eventually(t, patience, what, func() bool { return strings.Contains(cmd.stderr.String(), what) })
	}
	says("renewing")
	s.Resume()
	says("renewed again")
	require.NoError(t, stdin.Close())
	cmd.code(t)

	cmd = command(t, url, "run", "-v", "--key", "k", "--ttl", "3s", "--", "sleep", "60")
	require.NoError(t, cmd.Start())
	says("got ")
	s.Kill()
	require.Equal(t, exitLost, cmd.code(t))
	require.Equal(t, 1, strings.Count(cmd.stderr.String(), "renewing"), cmd.stderr)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--version", "version"} {
		out, _ := runs(t, 0, nil, arg)
		require.Regexp(t, `^locker \S+.* go1\.\S+ \S+/\S+\n$`, out)
	}
}
