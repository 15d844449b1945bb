//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/distlock/locker/internal/test/pace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestReportThatWasThere: a report is replaced by another one, and by nothing else.
func TestReportThatWasThere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	runs(t, exitUnavailable, nil, "compare", "--yes", "--url", "redis://127.0.0.1:1", "--report", file)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))
	files, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// TestCompareSaysItOnce: what is wrong is said once, in words of this program.
func TestCompareSaysItOnce(t *testing.T) {
	t.Parallel()
	_, stderr := runs(t, exitUnavailable, nil, "compare", "--yes", "--url", "redis://127.0.0.1:1", "--report", "-")
	require.Equal(t, 1, strings.Count(stderr, "connection refused"), stderr)
	_, stderr = runs(t, exitUsage, nil, "compare", "--threshold", "NaN%", "--json", "--markdown")
	require.Contains(t, stderr, "--threshold=NaN%")
	_, stderr = runs(t, exitUsage, nil, "compare", "--json", "--markdown")
	require.Equal(t, "locker: --json and --markdown: one of them; see locker compare --help\n", stderr)
}

// TestCompareReportFails: a report that cannot be written does not take the result with it, and a report without a name is refused
// before anything is measured.
func TestCompareReportFails(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err) // not on Linux, which has this file always
	}
	cmd := command(t, "", "compare", "--no-suite", "--strategies", "memory", "--runs", "1", "--time", "1ms", "--json", "--report", "/dev/full")
	var out strings.Builder
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	require.NotZero(t, cmd.code(t))
	require.Contains(t, out.String(), `"schema": 2`)
	_, stderr := runs(t, exitUsage, nil, "compare", "--no-suite", "--strategies", "memory", "--runs", "1", "--time", "1ms", "--report", "")
	require.Contains(t, stderr, "--report")
}

// TestInterruptedText: only of Redis it is known that nothing is left.
func TestInterruptedText(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, (&compareFlags{}).interrupted(), "nothing is left on the servers")
	require.ErrorContains(t, (&compareFlags{urls: []string{"redis://h"}}).interrupted(), "nothing is left on the servers")
	for _, u := range []string{"postgres://app@h/app", "mysql://h/d", "etcd://h"} {
		require.NotContains(t, (&compareFlags{urls: []string{"redis://h", u}}).interrupted().Error(), "on the servers", u)
	}
}

// TestCompareInterruptedTwice: a second Ctrl-C ends the clean-up of a server that does not answer.
func TestCompareInterruptedTwice(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	rdb := s.Client(t)
	cmd := command(t, "", "compare", "--no-suite", "--yes", "--strategies", "setnx", "--report", "-", "--url", s.URL())
	upTo := cmd.reports(t)
	pace.Eventually(t, patience, "it has begun", func() bool { return rdb.DBSize(t.Context()).Val() > 50 })
	s.Pause()
	defer s.Resume()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Contains(t, upTo("deleting"), "locker-compare:", "what is left")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	cmd.code(t)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), "%v", cmd.ProcessState)
}

// TestCompareIsTerminated: nothing of it is left on a server of others, whatever ends it.
func TestCompareIsTerminated(t *testing.T) {
	t.Parallel()
	for _, by := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		s, _, _ := server(t)
		rdb := s.Client(t)
		require.NoError(t, rdb.Set(t.Context(), "others", "x", 0).Err())
		cmd := command(t, "", "compare", "--quick", "--yes", "--strategies", "setnx", "--report", "-", "--url", s.URL())
		require.NoError(t, cmd.Start())
		pace.Eventually(t, patience, "it has begun", func() bool { return rdb.DBSize(t.Context()).Val() > 50 })
		require.NoError(t, cmd.Process.Signal(by), by)
		cmd.code(t)
		pace.Eventually(t, patience, "nothing is left", func() bool { return rdb.DBSize(t.Context()).Val() == 1 })
	}
}

// TestCompareIsKilledInTheSuite: nothing is left on any server, not on one that the suite does not use either.
func TestCompareIsKilledInTheSuite(t *testing.T) {
	t.Parallel()
	all, _, _ := server(t)
	other, _, _ := server(t)
	cmd := command(t, "", "compare", "--quick", "--yes", "--strategies", "setnx,blpop", "--runs", "1", "--report", "-", "--url", all.URL(), "--url", "blpop+"+other.URL())
	cmd.reports(t)("conformance suite")
	rdb := other.Client(t)
	require.Positive(t, rdb.DBSize(t.Context()).Val())
	pace.Eventually(t, patience, "the suite has begun", func() bool { return all.Client(t).DBSize(t.Context()).Val() > 500 })
	require.NoError(t, cmd.Process.Kill())
	cmd.code(t)
	for _, s := range []*redis.Client{rdb, all.Client(t)} {
		pace.Eventually(t, patience, "nothing is left", func() bool { return s.DBSize(t.Context()).Val() == 0 })
	}
}

// TestCompareInterrupted: after Ctrl-C no server and no file is left.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cmp") //nolint:usetesting // short: the path of a socket has room for some hundred bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := command(t, "", "compare", "--quick", "--strategies", "blpop", "--report", filepath.Join(dir, "report.html"))
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	cmd.reports(t)("conformance suite")
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
