package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal starts a locker run that has a terminal, as from a shell, and returns the
// other end of it.
func onTerminal(t *testing.T, url, script string) (*locked, *bufio.Reader, *os.File) {
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

	l := command(t, url, "run", "--key", "k", "--", "sh", "-c", script)
	l.Stdin, l.Stdout = terminal, terminal
	l.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, l.Start())
	terminal.Close()
	require.NoError(t, keys.SetReadDeadline(time.Now().Add(patience)))
	screen := bufio.NewReader(keys)
	sees(t, screen, "ready")
	return l, screen, keys
}

func sees(t *testing.T, screen *bufio.Reader, what string) {
	t.Helper()
	for {
		line, err := screen.ReadString('\n')
		require.NoError(t, err, what)
		if strings.Contains(line, what) {
			return
		}
	}
}

// TestTerminal: COMMAND reads from the terminal, and is stopped and ended by its keys.
func TestTerminal(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	cmd, screen, keys := onTerminal(t, url, `trap 'exit 5' INT; echo ready; read line; echo "read $line"; while :; do sleep 0.05; done`)
	_, err := keys.WriteString("words\n")
	require.NoError(t, err)
	sees(t, screen, "read words")

	_, err = keys.WriteString("\x1a") // Ctrl-Z
	require.NoError(t, err)
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; { // as the shell waits
		_, err = syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	require.NoError(t, err)
	require.True(t, status.Stopped(), "locker itself stops")
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))

	require.NoError(t, err)
	_, err = keys.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	require.Equal(t, 5, cmd.code(t), cmd.stderr)
	free(t, l, "k")
}
