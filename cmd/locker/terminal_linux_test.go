package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal has a shell with a terminal of its own run the script, and returns the other
// end of the terminal. The script finds locker as "$LOCKER".
func onTerminal(t *testing.T, url, script string) (screen *bufio.Reader, keys *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { keys.Close() })
	raw, err := keys.SyscallConn()
	require.NoError(t, err)
	var n int
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	}))
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)

	self := command(t, url)
	shell := exec.Command("sh", "-c", script)
	shell.Env = append(self.Env, "LOCKER="+self.Path)
	shell.Stdin, shell.Stdout, shell.Stderr = terminal, terminal, terminal
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, shell.Start())
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	terminal.Close()
	require.NoError(t, keys.SetReadDeadline(time.Now().Add(patience)))
	return bufio.NewReader(keys), keys
}

func types(t *testing.T, keys *os.File, what string) {
	t.Helper()
	_, err := keys.WriteString(what)
	require.NoError(t, err)
}

func sees(t *testing.T, screen *bufio.Reader, what string) {
	t.Helper()
	var shown strings.Builder
	for {
		line, err := screen.ReadString('\n')
		shown.WriteString(line)
		require.NoError(t, err, "want %q, got %q", what, &shown)
		if strings.Contains(line, what) {
			return
		}
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// TestTerminal: COMMAND reads from the terminal, and the keys stop it, with locker, and
// end it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for name, job := range map[string]string{
		"has the terminal":        `"$LOCKER" run --key k1 -- "$LOCKER" clock /dev/stdin`,
		"does not ask for it":     `"$LOCKER" run --key k2 -- "$LOCKER" clock </dev/null`,
		"asks for it by its name": `"$LOCKER" run --key k3 -- "$LOCKER" clock /dev/tty </dev/null`,
		"is of two lockers":       `"$LOCKER" run --key k4 -- "$LOCKER" run --key k5 -- "$LOCKER" clock </dev/null`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen, keys := onTerminal(t, url, "set -m; "+job+`; echo "status $?"; sleep 0.3; echo slept; fg; echo "status $?"`)
			sees(t, screen, "ready")
			if strings.Contains(job, "clock /") {
				types(t, keys, "words\n")
				sees(t, screen, "read words")
			}
			for range 2 {
				sees(t, screen, "tick")
			}
			types(t, keys, ctrlZ)
			sees(t, screen, "status 14") // 128 and a signal's number
			noTick(t, screen)
			sees(t, screen, "tick")
			types(t, keys, ctrlC)
			sees(t, screen, "status 5")
		})
	}
	t.Cleanup(func() {
		for _, key := range []string{"k1", "k2", "k3", "k4", "k5"} {
			lease, err := l.TryLock(context.Background(), key)
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(context.Background()))
		}
	})
}

// TestTerminalIsGivenBack: in a script COMMAND reads from the terminal, and after it the
// script does.
func TestTerminalIsGivenBack(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	screen, keys := onTerminal(t, url, `"$LOCKER" run --key k -- "$LOCKER" clock /dev/stdin; read word; echo "and $word"`)
	sees(t, screen, "ready")
	types(t, keys, "words\n")
	sees(t, screen, "read words")
	types(t, keys, ctrlC)
	types(t, keys, "more\n")
	sees(t, screen, "and more")
}

// TestTerminalInTheBackground: a background job that reads from the terminal is stopped, as
// each other one is, and goes on in the foreground.
func TestTerminalInTheBackground(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	screen, keys := onTerminal(t, url, `exec bash -c 'set -m; "$LOCKER" run --key k -- "$LOCKER" clock /dev/stdin &
		until [[ $(jobs) == *Stopped* ]]; do sleep 0.05; done; echo halted; bg
		until [[ $(jobs) == *Stopped* ]]; do sleep 0.05; done; echo halted again; fg; echo "status $?"'`)
	sees(t, screen, "halted")
	sees(t, screen, "halted again")
	types(t, keys, "words\n")
	sees(t, screen, "read words")
	types(t, keys, ctrlC)
	sees(t, screen, "status 5")
	free(t, l, "k")
}

// TestTerminalTermWhileStopped: a job whose COMMAND is stopped ends by TERM, as each other one does, and gives the
// lock back: one that wants the terminal, and one that somebody has stopped.
func TestTerminalTermWhileStopped(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	// cat has one thread and catches nothing. A program in Go can read the terminal again before it heeds TERM, and is stopped again.
	for name, job := range map[string]string{
		"wants the terminal": `"$LOCKER" run --key k1 -- cat & until [[ $(jobs) == *Stopped* ]]; do sleep 0.05; done`,
		"by a signal": `"$LOCKER" run --key k2 -- sh -c "echo \$\$ >pid; sleep 60" &
			until [[ -s pid ]]; do sleep 0.05; done; kill -STOP $(<pid); until grep -q "State:.T" /proc/$(<pid)/status; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// bash takes a job for stopped until it has heard that the job goes on, and does not wait for it before.
			screen, _ := onTerminal(t, url, "cd "+t.TempDir()+"; exec bash -c 'set -m; "+job+`; kill -TERM %1; while [[ $(jobs) == *Stopped* ]]; do sleep 0.05; done; wait $!; echo "status $?"'`)
			sees(t, screen, "status 143")
		})
	}
	t.Cleanup(func() {
		for _, key := range []string{"k1", "k2"} {
			lease, err := l.TryLock(context.Background(), key)
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(context.Background()))
		}
	})
}

// TestTerminalQuit: Ctrl-\ reaches COMMAND.
func TestTerminalQuit(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	screen, keys := onTerminal(t, url, `"$LOCKER" run --key k -- "$LOCKER" clock /dev/stdin; echo "status $?"`)
	sees(t, screen, "ready")
	types(t, keys, "words\n")
	sees(t, screen, "read words")
	types(t, keys, "\x1c")
	sees(t, screen, "status ")
	free(t, l, "k")
}

// TestTerminalLossWhileStopped: after Ctrl-Z the lock ends, and fg says so.
func TestTerminalLossWhileStopped(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	screen, keys := onTerminal(t, url, `set -m; "$LOCKER" run --key k --ttl 2s -- "$LOCKER" clock </dev/null; echo "status $?"; read line; fg; echo "status $?"`)
	sees(t, screen, "ready")
	types(t, keys, ctrlZ)
	sees(t, screen, "status 14")
	pace.Eventually(t, patience, "the lock is free", func() bool {
		lease, err := l.TryLock(t.Context(), "k")
		return err == nil && lease.Unlock(t.Context()) == nil
	})
	types(t, keys, "\n")
	sees(t, screen, "lock lost")
	sees(t, screen, "status 122")
}

// TestTerminalGoesAway: a background job that waits for the terminal ends with it.
func TestTerminalGoesAway(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	screen, keys := onTerminal(t, url, `exec bash -c 'set -m; "$LOCKER" run --key k --ttl 1h -- "$LOCKER" clock /dev/stdin &
		until [[ $(jobs) == *Stopped* ]]; do sleep 0.05; done; echo halted; sleep 60'`)
	sees(t, screen, "halted")
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, keys.Close())
	pace.Eventually(t, patience, "the lock is free", func() bool {
		lease, err := l.TryLock(t.Context(), "k")
		return err == nil && lease.Unlock(t.Context()) == nil
	})
}

// TestUnlockAsks shows the holder, and leaves the lock alone unless the answer is yes.
func TestUnlockAsks(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	screen, keys := onTerminal(t, url, `for i in 1 2 3; do "$LOCKER" unlock --force k; echo "status $?"; done`)
	sees(t, screen, lease.Owner())
	types(t, keys, "n\n")
	sees(t, screen, "left alone")
	sees(t, screen, "status 1")
	sees(t, screen, lease.Owner())
	types(t, keys, "yes\n")
	sees(t, screen, "was taken")
	sees(t, screen, "status 0")
	sees(t, screen, `"k" is free`)
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
}

// TestCompareAsks: a no is no wrong usage.
func TestCompareAsks(t *testing.T) {
	t.Parallel()
	screen, keys := onTerminal(t, "", `"$LOCKER" compare --url redis://localhost:1; echo "status $?"`)
	types(t, keys, "n\n")
	sees(t, screen, "nothing was done")
	sees(t, screen, "status 1\r")
}

// TestWatchOnTerminal: what is wrong stays on the screen.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	screen, _ := onTerminal(t, "setnx+unix:///nowhere.sock", `"$LOCKER" inspect --watch --every 20ms k`)
	line, err := screen.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "away")
	require.Contains(t, line, "nowhere.sock")
	require.NotContains(t, line, "\x1b", "it stays on the screen")
}

// TestInterruptEndsLoops: bash ends a loop of lockers on Ctrl-C, which it goes on with after
// a command that exits with a code.
func TestInterruptEndsLoops(t *testing.T) {
	t.Parallel()
	_, _, url := server(t)
	for name, script := range map[string]string{
		"while it runs":  `for i in 1 2; do "$LOCKER" run --key k -- sh -c "echo ready; exec sleep 60"; echo "went on"; done`,
		"while it waits": `"$LOCKER" run --key w -- sleep 60 & for i in 1 2; do "$LOCKER" run -v --key w -- true; echo "went on"; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen, keys := onTerminal(t, url, "exec bash -c '"+script+"'")
			if name == "while it runs" {
				sees(t, screen, "ready")
			} else {
				sees(t, screen, "waiting for")
			}
			types(t, keys, ctrlC)
			rest, _ := io.ReadAll(screen)
			require.NotContains(t, string(rest), "went on")
		})
	}
}

// TestTellsOfTheHolder: a person who waits sees the holder.
func TestTellsOfTheHolder(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	screen, _ := onTerminal(t, url, `"$LOCKER" run --key k -- echo through`)
	sees(t, screen, "held by "+lease.Owner())
	require.NoError(t, lease.Unlock(t.Context()))
	sees(t, screen, "through")
}

// noTick wants no tick while the shell sleeps.
func noTick(t *testing.T, screen *bufio.Reader) {
	t.Helper()
	for {
		line, err := screen.ReadString('\n')
		require.NoError(t, err)
		require.NotContains(t, line, "tick")
		if strings.Contains(line, "slept") {
			return
		}
	}
}

// TestUnlockShowsBeforeItAsks: a person sees the holder and the question though the output goes to a file.
func TestUnlockShowsBeforeItAsks(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	screen, keys := onTerminal(t, url, `"$LOCKER" unlock --force k >/dev/null; echo "status $?"`)
	sees(t, screen, lease.Owner())
	types(t, keys, "yes\n")
	sees(t, screen, "status 0")
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
}
