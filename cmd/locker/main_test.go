//go:build unix

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/cmd/locker/internal/compare"
	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/stretchr/testify/require"
)

// asLocker makes the test binary the command.
const asLocker = "LOCKER_TEST_AS_LOCKER"

func TestMain(m *testing.M) {
	if code, ok := helper(os.Args); ok { // of a command that a test has run in this process
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "clock" {
		os.Exit(clock(os.Args[2:]))
	}
	compare.Serve()
	if os.Getenv(asLocker) != "" {
		main()
		os.Exit(0)
	}
	flag.Parse()
	heedSignals()
	_ = flag.Set("test.parallel", "8") // most of them wait most of the time
	os.Exit(serverstest.Main(m))
}

// heedSignals lets the commands that the tests start heed the signals that nohup, or a shell
// which runs the tests in its background, has this process ignore: a signal that is caught
// here has its default effect there.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// clock is a COMMAND: it says that it is ready, reads a line if there is a file to read it
// from, and ticks. A shell that starts a process for each tick would not do: stopped while it
// does, it is not seen to be stopped.
func clock(files []string) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT)
	fmt.Println("ready")
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return 1
		}
		line, err := bufio.NewReader(f).ReadString('\n')
		if err != nil {
			return 2
		}
		fmt.Print("read ", line)
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-tick.C:
			fmt.Println("tick")
		case <-interrupted:
			return 5
		}
	}
}

const patience = 30 * time.Second

// locked is a locker run.
type locked struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr *said
}

// said collects the output of a process.
type said struct {
	mu  sync.Mutex
	all strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

func command(t *testing.T, url string, args ...string) *locked {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	l := &locked{Cmd: exec.CommandContext(ctx, self, args...), stderr: new(said)}
	l.Env = append(os.Environ(), asLocker+"=1", "LOCKER_URL="+url)
	l.Stderr = l.stderr
	return l
}

// begin starts it, and returns when COMMAND has said that it is ready.
func (l *locked) begin(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	l.Stdout, l.stdout = w, bufio.NewReader(r)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
	require.NoError(t, l.Start())
	w.Close()
	l.says(t, "ready")
}

// reports starts it, and returns a function that reads its stderr up to a line that contains a word, and returns this line.
func (l *locked) reports(t *testing.T) (upTo func(word string) string) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	l.Cmd.Stderr = w
	require.NoError(t, l.Start())
	w.Close()
	lines := bufio.NewScanner(r)
	return func(word string) string {
		for lines.Scan() {
			if strings.Contains(lines.Text(), word) {
				return lines.Text()
			}
		}
		require.Fail(t, "its stderr has ended", "want %q", word)
		return ""
	}
}

func (l *locked) says(t *testing.T, what string) {
	t.Helper()
	line, err := l.stdout.ReadString('\n')
	require.NoError(t, err, l.stderr)
	require.Equal(t, what+"\n", line)
}

// silent wants COMMAND, and all it has started, to end without another word.
func (l *locked) silent(t *testing.T) {
	t.Helper()
	line, err := l.stdout.ReadString('\n')
	require.Empty(t, line)
	require.ErrorContains(t, err, "EOF")
}

// code waits for the exit code.
func (l *locked) code(t *testing.T) int {
	t.Helper()
	if err := l.Wait(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	if status := l.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return l.ProcessState.ExitCode()
}

// server is a Redis of the test's own, a Locker on it, and its URL.
func server(t *testing.T) (*redistest.Server, locker.Locker, string) {
	t.Helper()
	s := redistest.Start(t)
	l, err := setnx.New(s.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return s, l, "setnx+unix://" + s.Socket()
}

func free(t *testing.T, l locker.Locker, key string) {
	t.Helper()
	lease, err := l.TryLock(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestEnvironmentAndExclusion(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	first := command(t, url, "run", "--key", "k", "--", "sh", "-c", `echo ready; echo $LOCKER_KEY; echo $LOCKER_TOKEN; read x; exit 3`)
	stdin, err := first.StdinPipe()
	require.NoError(t, err)
	first.begin(t)
	first.says(t, "k")
	var token, next int64
	_, err = fmt.Fscanln(first.stdout, &token)
	require.NoError(t, err)
	require.Positive(t, token)
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)

	second := command(t, url, "run", "--key", "k", "--", "sh", "-c", `echo ready; echo $LOCKER_TOKEN`)
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	second.begin(t)
	_, err = fmt.Fscanln(second.stdout, &next)
	require.NoError(t, err)
	require.Greater(t, next, token)
	require.Equal(t, 3, first.code(t))
	require.Equal(t, 0, second.code(t))
	free(t, l, "k")
}

// stubborn has a child of its own, and takes TERM for a word to say.
const stubborn = `trap 'echo told' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo ready; while :; do sleep 0.05; done`

// TestLoss: COMMAND and what it has started are asked to stop, and killed after the grace.
func TestLoss(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, s *redistest.Server){
		"the key is deleted": func(t *testing.T, s *redistest.Server) {
			require.NoError(t, s.Client(t).Del(t.Context(), "k").Err())
		},
		"the server dies": func(_ *testing.T, s *redistest.Server) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, url := server(t)
			cmd := command(t, url, "run", "--key", "k", "--ttl", "2s", "--grace", "300ms", "--", "sh", "-c", stubborn)
			cmd.begin(t)
			lose(t, s)
			cmd.says(t, "told")
			cmd.silent(t)
			require.Equal(t, exitLost, cmd.code(t))
			require.Contains(t, cmd.stderr.String(), "asked to stop")
		})
	}
}

// TestMaxHold: the lock is given back when COMMAND has been stopped.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	cmd := command(t, url, "run", "--key", "k", "--max-hold", "300ms", "--", "sleep", "60")
	require.NoError(t, cmd.Start())
	require.Equal(t, exitLost, cmd.code(t))
	require.Contains(t, cmd.stderr.String(), "--max-hold")
	free(t, l, "k")
}

// TestKilled: COMMAND does not outlive a locker that is killed, whose lock ends by itself.
func TestKilled(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	cmd := command(t, url, "run", "--key", "k", "--ttl", "2s", "--grace", "300ms", "--", "sh", "-c", stubborn)
	cmd.begin(t)
	require.NoError(t, cmd.Process.Kill())
	cmd.says(t, "told")
	cmd.silent(t)
	pace.Eventually(t, patience, "the lock is free", func() bool {
		lease, err := l.TryLock(t.Context(), "k")
		return err == nil && lease.Unlock(t.Context()) == nil
	})
}

// TestKilledAfterALoss: what COMMAND has started does not outlive a locker that is killed between the end of
// COMMAND and the end of the grace.
func TestKilledAfterALoss(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	cmd := command(t, url, "run", "--key", "k", "--ttl", "10s", "--grace", "4s", "--", "sh", "-c", `echo ready; echo $$; (trap '' TERM; echo child; exec sleep 60) & wait`)
	cmd.begin(t)
	var pid int
	_, err := fmt.Fscanln(cmd.stdout, &pid)
	require.NoError(t, err)
	cmd.says(t, "child")
	require.NoError(t, s.Client(t).Del(t.Context(), "k").Err())
	pace.Eventually(t, patience, "COMMAND has ended", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	require.NoError(t, cmd.Process.Kill())
	cmd.silent(t)
}

// TestGuardObservesTheGrace: once a loss is reported to it, a guard whose locker is gone waits no longer than the
// grace that was reported.
func TestGuardObservesTheGrace(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap '' TERM; echo ready; exec sleep 60`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	guarded := make(chan struct{})
	go func() {
		untilDismissed(strings.NewReader(fmt.Sprintf("%d\n%v\n", cmd.Process.Pid, 50*time.Millisecond)), time.Hour)
		close(guarded)
	}()
	require.Error(t, cmd.Wait())
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	<-guarded
}

func TestCommandIsKilled(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	cmd := command(t, url, "run", "--key", "k", "--", "sh", "-c", `echo ready; echo $$; exec sleep 60`)
	cmd.begin(t)
	var pid int
	_, err := fmt.Fscanln(cmd.stdout, &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Equal(t, 128+int(syscall.SIGKILL), cmd.code(t))
	free(t, l, "k")
}
