//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
)

// atScript has do called before the server gets the nth script that follows. The scripts have to be in the server's cache.
func atScript(p *faultproxy.Proxy, n int, do func()) {
	nth := scripts(n)
	done := false
	p.Watch(func(cmd []string) {
		if nth(cmd) && !done {
			done = true
			do()
		}
	})
}

// permit takes one of two permits of k.
func permit(t *testing.T, l locker.Locker) *locker.Lease {
	t.Helper()
	s, err := locker.NewSemaphore(l, "k", 2)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context())
	require.NoError(t, err)
	return lease
}

// known lets the server know the scripts of unlock, by which it takes k from its holder.
func known(t *testing.T, url string) {
	t.Helper()
	runs(t, 0, nil, "unlock", "--url", url, "--force", "--yes", "k")
}

// TestUnlockPermitsOfOthers: permits that have gone since they were shown are not reported as taken, and others are left alone.
func TestUnlockPermitsOfOthers(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	p, url := through(t, s)
	permit(t, l)
	known(t, url)
	was, now := permit(t, l), (*locker.Lease)(nil)
	atScript(p, 3, func() {
		require.NoError(t, was.Unlock(context.Background()))
		now = permit(t, l)
	})
	out, stderr := runs(t, exitNone, nil, "unlock", "--url", url, "--force", "--yes", "k")
	require.NotContains(t, out, "was taken")
	require.Contains(t, stderr, "changed")
	require.NoError(t, now.Unlock(t.Context()))
}

// TestNoPermitsAnyMore: permits that have gone between two questions to the store have no holder.
func TestNoPermitsAnyMore(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	_, url := through(t, s)
	permit(t, l)
	known(t, url)
	for _, args := range [][]string{{"inspect"}, {"inspect", "--json"}, {"unlock", "--force", "--yes"}} {
		p, url := through(t, s)
		lease := permit(t, l)
		atScript(p, 2, func() { require.NoError(t, lease.Unlock(context.Background())) })
		out, stderr := runs(t, exitNone, nil, append(args, "--url", url, "k")...)
		require.Contains(t, out+stderr, "free")
		require.NotContains(t, out, "permits")
	}
}

// TestAskedNobody: a holder that has gone before it is asked is not reported as asked.
func TestAskedNobody(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	p, url := through(t, s)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	runs(t, 0, nil, "ask", "--url", url, "--wait", "0", "k")
	atScript(p, 2, func() { require.NoError(t, lease.Unlock(context.Background())) })
	out, _ := runs(t, 0, nil, "ask", "--url", url, "--wait", "0", "k")
	require.Equal(t, "\"k\" is free\n", out)
}

// TestInterrupts: Ctrl-C ends each command while the store does not answer, and the code says so.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  string
		after int // scripts
		says  string
	}{
		"inspect":             {"inspect k", 1, ""},
		"inspect the permits": {"inspect k", 2, ""},
		"inspect all":         {"inspect", 2, ""},
		"watch":               {"inspect --watch k", 2, ""},
		"ask":                 {"ask k", 1, ""},
		"unlock":              {"unlock --force --yes k", 1, ""},
		"unlock, taking":      {"unlock --force --yes k", 3, `"k" may have been taken`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l, url := server(t)
			permit(t, l)
			known(t, url)
			permit(t, l)
			p, url := through(t, s)
			hung := p.HangReply(scripts(c.after), 0)
			cmd := command(t, url, strings.Fields(c.args)...)
			require.NoError(t, cmd.Start())
			require.NoError(t, hung.Wait(t.Context(), 1))
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			require.Equal(t, exitInterrupted, cmd.code(t), cmd.stderr)
			require.Contains(t, cmd.stderr.String(), c.says)
		})
	}
}

// TestUnlockWithoutAnAnswer: a person learns that the lock may have been taken.
func TestUnlockWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	p, url := through(t, s)
	_, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	known(t, url)
	_, err = l.Lock(t.Context(), "k")
	require.NoError(t, err)
	p.HangReply(scripts(2), 0)
	_, stderr := runs(t, exitUnavailable, nil, "unlock", "--url", url, "--force", "--yes", "k")
	require.Contains(t, stderr, `"k" may have been taken`)
}

// TestInterruptWhileItConnects: a client that asks a server when it is made holds up no Ctrl-C.
func TestInterruptWhileItConnects(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	url := "etcd://app:secret@" + silent.Addr().String() + "?dial_timeout=20s"
	for _, args := range []string{"inspect k", "ask k", "unlock --force --yes k"} {
		cmd := command(t, url, strings.Fields(args)...)
		require.NoError(t, cmd.Start())
		conn, err := silent.Accept()
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Equal(t, exitInterrupted, cmd.code(t), cmd.stderr)
		conn.Close()
	}
}

// TestInterruptWhileNobodyReads: Ctrl-C ends a command whose reader, such as a pager, reads no further.
func TestInterruptWhileNobodyReads(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for i := range 1000 {
		_, err := l.Lock(t.Context(), fmt.Sprint("a key of some length, since a pipe takes 64 KiB: ", i))
		require.NoError(t, err)
	}
	for _, args := range []string{"inspect --json", "inspect --json --watch"} {
		cmd := command(t, url, strings.Fields(args)...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it writes
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Equal(t, exitInterrupted, cmd.code(t), cmd.stderr)
	}
}

// full is a disk that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestOutputIsLost: a lock is not reported as free because the output could not be written.
func TestOutputIsLost(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	for _, args := range []string{"inspect k", "inspect --json", "inspect --watch k"} {
		var stderr bytes.Buffer
		require.Equal(t, exitUsage, execute(append(strings.Fields(args), "--url", url), nil, full{}, &stderr), args)
		require.Contains(t, stderr.String(), "no space left")
	}
	require.NoError(t, lease.Unlock(t.Context()))
}

// TestWatchOfWrongKey: no store comes back that makes a wrong KEY right.
func TestWatchOfWrongKey(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	for _, key := range []string{"", "\xff", strings.Repeat("k", 20_000), "locker:x"} {
		_, stderr := runs(t, exitUsage, nil, "inspect", "--watch", "--url", url, key)
		require.Contains(t, stderr, "key")
	}
}

// twice is a driver of a store that lists keys twice, as SCAN may.
type twice struct {
	driver.Driver
	driver.Inspector
}

func (d twice) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for range 2 {
			for key, err := range d.Inspector.Keys(ctx, pattern) {
				if !yield(key, err) {
					return
				}
			}
		}
	}
}

// TestKeysThatComeTwice: a lock that the store lists twice is one lock.
func TestKeysThatComeTwice(t *testing.T) {
	t.Parallel()
	d := memory.NewStore().Driver()
	a, err := locker.New(twice{d, d.(driver.Inspector)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	for _, key := range []string{"a", "b"} {
		_, err := a.Lock(t.Context(), key)
		require.NoError(t, err)
	}
	f := &inspectFlags{}
	v := f.view(t.Context(), a, nil)
	require.NoError(t, v.err)
	require.Len(t, v.rows, 2)
	require.Len(t, (&watcher{f: f}).look(v), 3, "two locks and their number")
}

// TestRowsOfPermits: a claim whose beginning is unknown has none in the table.
func TestRowsOfPermits(t *testing.T) {
	claim := locker.Holder{Key: "k", Held: true, ID: "a:1", Strategy: "permits", Permits: 1, Limit: 2}
	key := claim
	key.ID, key.Token = "", 1<<40
	out := new(inspectFlags).table([]row{{Holder: key, state: stateHeld, claims: []locker.Holder{claim}}}, time.Now())
	require.NotContains(t, out, "h47m")
	require.Contains(t, out, fmt.Sprint(key.Token), "on machines of 32 bits, too")
}

// TestInspectTurnsNoText: what others wrote does not turn the direction of the text either.
func TestInspectTurnsNoText(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	const turned, far = "\u202egnp.exe", "\U000e0041"
	require.NoError(t, s.Client(t).Set(t.Context(), "k", turned+far, time.Minute).Err())
	out, _ := runs(t, 0, nil, "inspect", "--url", url, "--values", "--json", "k")
	require.Equal(t, turned+far, inLines(t, out)[0]["value"])
	table, _ := runs(t, 0, nil, "inspect", "--url", url, "--values", "k")
	require.NotContains(t, out+table, "\u202e")
	require.NotContains(t, onOneLine("a"+turned), "\u202e")
}
