//go:build unix

package sale

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/stretchr/testify/require"
)

// startLong starts a sale that takes long, and returns once all shops are open.
// The pipe is the stderr of the program and of its shops: its end means that
// all of them are gone.
func startLong(t *testing.T, strategy string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	require.NoError(t, r.SetReadDeadline(time.Now().Add(30*time.Second)))

	cmd := command(t, "-strategy", strategy, "-buyers", "1000000", "-stock", "1000000")
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	w.Close()

	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, " open, ") {
			return cmd, lines
		}
	}
}

// TestPaused: the late write of a shop that was stopped oversells, unless its token is checked.
func TestPaused(t *testing.T) {
	results, code := sell(t, "-paused", "-strategy", "setnx", "-buyers", "80", "-stock", "20", "-concurrency", "24")
	require.Equal(t, cli.OK, code, "%+v", results)
	require.Len(t, results, 2)
	require.Equal(t, "setnx, not fenced", results[0].Strategy)
	require.Equal(t, "oversold by a late write, as expected", results[0].Verdict)
	require.Positive(t, results[0].Oversold)
	require.Equal(t, "setnx, fenced", results[1].Strategy)
	require.Equal(t, "ok, a late write was refused", results[1].Verdict)
	require.Equal(t, 20, results[1].Sold)
}

func TestInterrupt(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			cmd, stderr := startLong(t, m.name)
			// As a terminal does, to the shops as well.
			require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
			rest, err := io.ReadAll(stderr)
			require.NoError(t, err, "processes are left")
			require.Contains(t, string(rest), "interrupted")
			require.Error(t, cmd.Wait())
			require.Equal(t, cli.Interrupted, cmd.ProcessState.ExitCode())
		})
	}
}

func TestKilledParentLeavesNoShops(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			cmd, stderr := startLong(t, m.name)
			require.NoError(t, cmd.Process.Kill())
			_, err := io.ReadAll(stderr)
			require.NoError(t, err, "shops are left")
			require.Error(t, cmd.Wait())
		})
	}
}
