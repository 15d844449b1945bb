//go:build unix

package main

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for _, s := range []struct {
		signal syscall.Signal
		name   string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}} {
		cmd := command(t, url, "run", "--key", "k", "--", "sh", "-c", `trap 'echo told; exit 9' `+s.name+`; echo ready; while :; do sleep 0.05; done`)
		cmd.begin(t)
		require.NoError(t, cmd.Process.Signal(s.signal))
		cmd.says(t, "told")
		require.Equal(t, 9, cmd.code(t))
		free(t, l, "k")
	}
	cmd := command(t, url, "run", "--key", "k", "--", "sh", "-c", `sleep 60 & echo ready; wait`)
	cmd.begin(t)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+int(syscall.SIGTERM), cmd.code(t))
	cmd.silent(t)
	free(t, l, "k")
}

// TestSignalsReachAStoppedCommand: a signal that ends COMMAND does so though it is stopped.
func TestSignalsReachAStoppedCommand(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		cmd := command(t, url, "run", "--key", "k", "--", "sh", "-c", `echo ready; echo $$; exec sleep 60`)
		cmd.begin(t)
		var pid int
		_, err := fmt.Fscanln(cmd.stdout, &pid)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		require.NoError(t, cmd.Process.Signal(s))
		cmd.silent(t)
		require.Equal(t, 128+int(s), cmd.code(t))
		free(t, l, "k")
	}
}

// TestStopWithoutAShell: COMMAND is continued at once where no shell can continue a stopped locker, as
// in the group of a session's leader.
func TestStopWithoutAShell(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	self := command(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	leader := exec.CommandContext(ctx, "sh", "-c", `"$LOCKER" run --key k -- sh -c 'trap "exit 7" CONT; kill -TSTP $PPID; while :; do sleep 0.05; done'; exit $?`)
	leader.Env, leader.SysProcAttr = append(self.Env, "LOCKER="+self.Path), &syscall.SysProcAttr{Setsid: true}
	leader.Cancel = func() error { return syscall.Kill(-leader.Process.Pid, syscall.SIGKILL) }
	err := leader.Run()
	var exited *exec.ExitError
	require.ErrorAs(t, err, &exited)
	require.Equal(t, 7, exited.ExitCode())
	free(t, l, "k")
}

func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	held, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	cmd := command(t, url, "run", "-v", "--key", "k", "--", "true")
	cmd.reports(t)("waiting")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+int(syscall.SIGTERM), cmd.code(t))
	require.NoError(t, held.Unlock(t.Context()))
	free(t, l, "k")
}

// signalUntilItEnds sends a signal again and again, and waits for the end: one of them arrives at each moment of it.
func (l *locked) signalUntilItEnds(s syscall.Signal) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.Wait()
	}()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-tick.C:
			_ = l.Process.Signal(s)
		case <-ended:
			return
		}
	}
}
