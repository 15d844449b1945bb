//go:build unix

package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompareInterrupted: after Ctrl-C no server and no file is left.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cmp") // short, for sockets
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := command(t, "", "compare", "--quick", "--strategies", "blpop", "--report", filepath.Join(dir, "report.html"))
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.Stderr = w
	require.NoError(t, cmd.Start())
	w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "conformance suite") {
	}
	sockets := func() (all []string) {
		all, err := filepath.Glob(filepath.Join(dir, "*", "redis.sock"))
		require.NoError(t, err)
		return all
	}
	var were []string
	for len(were) <= 4 { // beyond those for the benchmarks: the suite has begun
		were = sockets()
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, cmd.code(t))
	for _, socket := range were {
		_, err := net.Dial("unix", socket)
		require.Error(t, err, "a server is left")
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
