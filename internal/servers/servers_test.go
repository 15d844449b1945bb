//go:build linux

package servers

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sleeper makes a server that only creates the file "up".
func sleeper(t *testing.T) *Server {
	t.Helper()
	k := kind{program: "/bin/sh", quit: syscall.SIGTERM, args: func(s *Server) []string {
		return []string{"-c", `trap 'kill $!' TERM; sleep 1000 & echo $! >"$0/up"; wait`, s.Dir}
	}}
	s, err := k.new(1, nil)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	require.NoError(t, s.Start(t.Context(), up(s)))
	return s
}

func up(s *Server) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(filepath.Join(s.Dir, "up"))
		return err
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	s := sleeper(t)
	require.NotZero(t, s.Ports[0])
	port := s.Ports[0]
	s.Freeze()
	all, stopped := s.processes()
	require.Len(t, all, 2, "the program and its child")
	require.Equal(t, 2, stopped)
	s.Thaw()
	s.Crash()
	for _, pid := range all {
		require.False(t, runs(pid), "process %d runs after the crash", pid)
	}
	require.NoError(t, os.Remove(filepath.Join(s.Dir, "up")))
	require.NoError(t, s.Start(t.Context(), up(s)))
	require.Equal(t, port, s.Ports[0], "a server keeps its port")
	s.Stop()
	require.NoDirExists(t, s.Dir)
}

// runs reports whether a process is there and is no zombie.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

// A port that another process has taken meanwhile is chosen anew; other failures are reported with the log.
func TestStartFails(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	tries := 0
	k := kind{program: "/bin/sh", quit: syscall.SIGTERM, args: func(s *Server) []string {
		tries++
		return []string{"-c", `echo "port ` + strconv.Itoa(s.Ports[0]) + ` is in use"; exit 1`}
	}}
	s, err := k.new(1, nil)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	require.ErrorContains(t, s.Start(t.Context(), up(s)), "is in use")
	require.Equal(t, 5, tries)
	tries, s.Ports[0] = 0, taken.Addr().(*net.TCPAddr).Port
	require.ErrorContains(t, s.Start(t.Context(), up(s)), "has ended")
	require.Equal(t, 1, tries, "a port that the caller has chosen stays")
}

const ownerEnv = "LOCKER_SERVERS_TEST"

// A server ends with the process that started it, however that ends.
func TestServerEndsWithItsOwner(t *testing.T) {
	if os.Getenv(ownerEnv) != "" {
		s := sleeper(t)
		require.NoError(t, os.WriteFile(os.Getenv(ownerEnv), []byte(s.Dir), 0o600))
		select {} // until it is killed
	}
	t.Parallel()
	report := filepath.Join(t.TempDir(), "dir")
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithItsOwner$")
	cmd.Env = append(os.Environ(), ownerEnv+"="+report)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { text, _ := os.ReadFile(report); return len(text) > 0 }, time.Minute, 10*time.Millisecond)
	dir, err := os.ReadFile(report)
	require.NoError(t, err)
	require.DirExists(t, string(dir))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { _, err := os.Stat(string(dir)); return err != nil }, time.Minute, 50*time.Millisecond)
}
