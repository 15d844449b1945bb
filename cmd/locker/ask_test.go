//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heeds is a COMMAND that says which signals reach it, and ends by USR2.
const heeds = `trap 'echo warned' USR1; trap 'echo asked; exit 7' USR2; echo ready; while :; do sleep 0.05; done`

// TestAsk: COMMAND is asked for the lock and gives it back; locker ask waits for that.
func TestAsk(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	flag := "--url=" + url
	out, _ := runs(t, 0, nil, "ask", flag, "k")
	require.Contains(t, out, "free")
	cmd := command(t, url, "run", "--key", "k", "--ask-signal", "SIGUSR2", "--", "sh", "-c", heeds)
	cmd.begin(t)
	// The locker may not listen yet: a request is repeated.
	out, _ = runs(t, 0, nil, "ask", flag, "--wait", patience.String(), "k")
	require.Contains(t, out, "free")
	cmd.says(t, "asked")
	require.Equal(t, 7, cmd.code(t))

	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	_, stderr := runs(t, exitNotAcquired, nil, "ask", flag, "--wait", "10ms", "k")
	require.Contains(t, stderr, "still held")
	asked := lease.ReleaseRequested()
	out, _ = runs(t, 0, nil, "ask", flag, "--wait", "0", "k")
	require.Contains(t, out, `"k" is held by`)
	select {
	case <-asked:
	case <-time.After(patience):
		require.Fail(t, "the request did not arrive")
	}
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestAskWrongly(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	flag := "--url=" + url
	require.NoError(t, s.Client(t).Set(t.Context(), "foreign", "x", time.Minute).Err())
	_, stderr := runs(t, exitNone, nil, "ask", flag, "foreign")
	require.Contains(t, stderr, "cannot be asked")
	require.NoError(t, s.Client(t).RPush(t.Context(), "list", "x").Err())
	runs(t, exitNone, nil, "ask", flag, "list")
	runs(t, exitUsage, nil, "ask", flag)
	runs(t, exitUsage, nil, "ask", flag, "--wait=-1s", "k")
	runs(t, exitUsage, nil, "ask", "k")
	for _, f := range []string{"--ask-signal", "--warn-signal"} {
		_, stderr = runs(t, exitUsage, nil, "run", flag, "--key", "k", f, "NONSENSE", "--", "true")
		require.Contains(t, stderr, f)
	}
}

// TestWarning: COMMAND gets a signal while renewals fail, before the lock is lost, and goes on if
// they succeed again.
func TestWarning(t *testing.T) {
	t.Parallel()
	s, l, url := server(t)
	cmd := command(t, url, "run", "--key", "k", "--ttl", "10s", "--warn-signal", "usr1", "--ask-signal", "USR2", "-v", "--", "sh", "-c", heeds)
	cmd.begin(t)
	s.Pause()
	cmd.says(t, "warned")
	s.Resume()
	require.Equal(t, 0, execute([]string{"ask", "--url=" + url, "k"}, nil, cmd.stderr, cmd.stderr), cmd.stderr)
	cmd.says(t, "asked")
	require.Equal(t, 7, cmd.code(t))
	require.Contains(t, cmd.stderr.String(), "in danger")
	free(t, l, "k")
}
