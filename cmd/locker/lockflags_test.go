//go:build unix

package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

// kept is a lock that a locker hold or run has until its standard input ends.
type kept struct {
	*locked
	stdin io.WriteCloser
}

// keep starts one, and returns once it has the lock.
func keep(t *testing.T, url string, args ...string) kept {
	t.Helper()
	k := kept{locked: command(t, url, args...)}
	var err error
	k.stdin, err = k.StdinPipe()
	require.NoError(t, err)
	k.begin(t)
	return k
}

func (k kept) giveBack(t *testing.T) {
	t.Helper()
	require.NoError(t, k.stdin.Close())
	require.Equal(t, 0, k.code(t), k.stderr)
}

// until is a COMMAND that ends with its standard input.
var until = []string{"--", "sh", "-c", `echo ready; echo "${LOCKER_TOKEN-none}"; cat`}

func run(flags ...string) []string {
	return append(append([]string{"run", "--key", "k"}, flags...), until...)
}

// TestShared: those that say --shared are inside together, and nobody else with them.
func TestShared(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	for _, strategy := range []string{"setnx", "hashreentrant", "blpop"} {
		t.Run(strategy, func(t *testing.T) {
			url := strategy + "+unix://" + s.Socket()
			first, second := keep(t, url, run("--shared")...), keep(t, url, run("-s", "--wait", "10s")...)
			for _, alone := range [][]string{nil, {"--exclusive"}} {
				_, stderr := runs(t, exitNotAcquired, nil, append([]string{"run", "--url", url, "--key", "k", "--wait", "0"}, append(alone, "true")...)...)
				require.Contains(t, stderr, "was not run")
			}
			first.giveBack(t)
			second.giveBack(t)
			writer := keep(t, url, run("--exclusive")...)
			_, stderr := runs(t, exitNotAcquired, strings.NewReader(""), "hold", "--url", url, "--shared", "--wait", "0", "k")
			require.NotEmpty(t, stderr)
			writer.giveBack(t)
		})
	}
}

// TestPermits: so many are inside as there are permits, and they have no fencing token.
func TestPermits(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	one, two := keep(t, url, run("--of", "3")...), keep(t, url, run("--of", "3", "--permits", "2")...)
	one.says(t, "none")
	_, stderr := runs(t, exitNotAcquired, nil, "run", "--url", url, "--key", "k", "--of", "3", "--wait", "0", "true")
	require.Contains(t, stderr, "was not run")
	out, _ := runs(t, 0, nil, "inspect", "--url", url, "k")
	for _, want := range []string{"permits", "3 of 3", "command=sh"} {
		require.Contains(t, out, want)
	}
	two.giveBack(t)
	third := command(t, url, "hold", "--of", "3", "k")
	stdin, err := third.StdinPipe()
	require.NoError(t, err)
	stdout, err := third.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, third.Start())
	var word string
	_, err = fmt.Fscanln(stdout, &word)
	require.NoError(t, err)
	require.Equal(t, "held", word)
	require.NoError(t, stdin.Close())
	require.Equal(t, 0, third.code(t))
	one.giveBack(t)
}

// TestUnlockPermits: the permits of all who have some are free after it.
func TestUnlockPermits(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	one, two := keep(t, url, run("--of", "2", "--ttl", "3s")...), keep(t, url, run("--of", "2", "--ttl", "3s")...)
	out, _ := runs(t, 0, nil, "unlock", "--url", url, "--force", "--yes", "k")
	require.Equal(t, 2, strings.Count(out, "command=sh"), out)
	require.Contains(t, out, "was taken")
	runs(t, 0, nil, "run", "--url", url, "--key", "k", "--of", "2", "--permits", "2", "--wait", "0", "true")
	for _, k := range []kept{one, two} {
		require.Equal(t, exitLost, k.code(t))
	}
}

// TestNotTogether: a strategy that cannot do it says so, and so do flags that do not fit.
func TestNotTogether(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	for _, c := range []struct{ url, flags, says string }{
		{"redlock+redis://127.0.0.1:1?node=127.0.0.1:2&node=127.0.0.1:3", "--of 2", "redlock keeps no permits; setnx, hashreentrant, blpop, postgres, mysql and etcd do"},
		{"redlock+redis://127.0.0.1:1?node=127.0.0.1:2&node=127.0.0.1:3", "--shared", "redlock lets in one process at a time"},
		{url, "--shared --exclusive", "one of them"},
		{url, "--shared --of 2", "neither --shared nor --exclusive"},
		{url, "--permits 2", "--permits needs --of"},
		{url, "--of 0", "--of=0: 1 to"},
		{url, "--of 2 --permits 3", "--permits=3: 1 to 2"},
		{url, "--grace 5s --ttl 10s", "--grace=5s: at most two fifths of the TTL, which is 10s"},
		{url + "?ttl=5s", "--grace 10s", "which is 5s"},
		{url, "--of 2 --ask-signal USR1", "--ask-signal is for locks"},
		{url, "--shared --ask-signal USR1", "--ask-signal is for locks"},
	} {
		args := append([]string{"run", "--url", c.url, "--key", "k", "--wait", "0"}, strings.Fields(c.flags)...)
		_, stderr := runs(t, exitUsage, nil, append(args, "true")...)
		require.Contains(t, stderr, c.says)
		if !strings.Contains(c.flags, "grace") && !strings.Contains(c.flags, "signal") { // which hold has not
			_, stderr = runs(t, exitUsage, strings.NewReader(""), append([]string{"hold", "--url", c.url, "k", "--wait", "0"}, strings.Fields(c.flags)...)...)
			require.Contains(t, stderr, c.says)
		}
	}
}

// TestGraceIsWithinTheTTL: a COMMAND that does not heed SIGTERM, whose lock cannot be renewed, is dead
// when another one gets the lock.
func TestGraceIsWithinTheTTL(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "holder", "on", ">secret", "~*", "&*", "+@all").Err())
	cmd := command(t, "setnx+redis://holder:secret@"+s.Addr(), "run", "--key", "k", "--ttl", "3s", "--grace", "1200ms",
		"--", "sh", "-c", `trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done`)
	cmd.begin(t)
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "holder", "off").Err())
	require.NoError(t, rdb.Do(t.Context(), "CLIENT", "KILL", "USER", "holder").Err())
	type grant struct {
		lease *locker.Lease
		err   error
		at    time.Time
	}
	next := make(chan grant, 1)
	go func() {
		lease, err := l.Lock(t.Context(), "k", locker.WithWait(patience))
		next <- grant{lease, err, time.Now()}
	}()
	cmd.says(t, "told")
	cmd.silent(t)
	dead := time.Now()
	got := <-next
	require.NoError(t, got.err)
	require.True(t, dead.Before(got.at), "it was alive when another one had the lock")
	require.Equal(t, exitLost, cmd.code(t))
	require.NoError(t, got.lease.Unlock(t.Context()))
}
