//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// through starts a proxy before a server, and returns it with its URL.
func through(t *testing.T, s *redistest.Server) (*faultproxy.Proxy, string) {
	t.Helper()
	p, err := faultproxy.New(s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, "setnx+redis://" + p.Addr()
}

// scripts matches the scripts from the nth on.
func scripts(n int) faultproxy.Match {
	seen := 0
	return func(cmd []string) bool {
		if strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
			seen++
			return seen >= n
		}
		return false
	}
}

// holding starts a locker hold of k, in a shell if there is a script for one, and returns it once it has the lock.
func holding(t *testing.T, url, script string) kept {
	t.Helper()
	k := kept{locked: command(t, url, "hold", "k")}
	if script != "" {
		k.Args = []string{"sh", "-c", script, k.Path}
		k.Path = "/bin/sh"
	}
	var err error
	k.stdin, err = k.StdinPipe()
	require.NoError(t, err)
	out, err := k.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, k.Start())
	k.stdout = bufio.NewReader(out)
	var token int64
	_, err = fmt.Fscanln(k.stdout, &token)
	require.NoError(t, err, k.stderr)
	return k
}

// TestHoldEndsAtTheSecondInterrupt: a store that does not answer keeps nobody who presses Ctrl-C again.
func TestHoldEndsAtTheSecondInterrupt(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	p, url := through(t, s)
	k := holding(t, url, "")
	hung := p.HangReply(scripts(1), 0)
	require.NoError(t, k.Process.Signal(syscall.SIGINT))
	require.NoError(t, hung.Wait(t.Context(), 1))
	require.NoError(t, k.Process.Signal(syscall.SIGINT))
	require.Equal(t, exitInterrupted, k.code(t), k.stderr)
	require.True(t, k.ProcessState.Sys().(syscall.WaitStatus).Signaled())
}

// TestHoldEndsWellHoweverManyTerms: the exit code shows that the lock was given back, whenever the last TERM arrives.
func TestHoldEndsWellHoweverManyTerms(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	k := holding(t, url, "")
	k.signalUntilItEnds(syscall.SIGTERM)
	require.Zero(t, k.ProcessState.ExitCode(), k.stderr)
	free(t, l, "k")
}

// TestHoldEndsWhileItBeginsToListen: the lock is given back at once though the subscription to requests is not there yet.
func TestHoldEndsWhileItBeginsToListen(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	p, url := through(t, s)
	p.Delay(faultproxy.MatchCommand("SUBSCRIBE", "SSUBSCRIBE"), 0, time.Minute)
	k := holding(t, url, "")
	t.Cleanup(pace.Keep())
	released := make(chan pace.Moment, 8)
	p.Watch(func(cmd []string) {
		if strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
			released <- pace.Now()
		}
	})
	ended := pace.Now()
	require.NoError(t, k.stdin.Close())
	require.Equal(t, 0, k.code(t), k.stderr)
	require.Less(t, (<-released).Since(ended), 900*time.Millisecond, "ReleaseRequested waits for a second")
}

// TestIgnoredSignalsStayIgnored: nohup, and a script's background, keep a signal from ending it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	k := holding(t, url, `trap "" HUP; exec "$0" hold k`)
	require.NoError(t, k.Process.Signal(syscall.SIGHUP))
	ask := command(t, url, "ask", "--wait", patience.String(), "k")
	require.NoError(t, ask.Start())
	k.says(t, "asked")
	k.giveBack(t)
	require.Equal(t, 0, ask.code(t), ask.stderr)

	w := watching{locked: command(t, url, "inspect")}
	w.Args = []string{"sh", "-c", `trap "" INT; exec "$0" inspect --watch --every 20ms k`, w.Path}
	w.Path = "/bin/sh"
	out, err := w.StdoutPipe()
	require.NoError(t, err)
	w.lines = bufio.NewScanner(out)
	require.NoError(t, w.Start())
	w.until(t, says("watching"), nil)
	require.NoError(t, w.Process.Signal(syscall.SIGINT))
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	w.until(t, says("granted"), nil)
	require.NoError(t, lease.Unlock(t.Context()))
	w.until(t, says("released"), nil)
	require.NoError(t, w.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = w.Wait()
}

// TestHoldUsedWrongly: wrong usage has its code though standard input has ended, too.
func TestHoldUsedWrongly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStdinEnded)
	for _, err := range []error{&exit{exitUsage, errors.New("no permits")}, fmt.Errorf("the key is wrong: %w", locker.ErrInvalid)} {
		var e *exit
		require.ErrorAs(t, new(holdFlags).notHeld(ctx, "k", err), &e)
		require.Equal(t, exitUsage, e.code)
		require.ErrorIs(t, e.err, errors.Unwrap(err))
	}
}
