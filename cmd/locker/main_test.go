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
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/cmd/locker/internal/compare"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/stretchr/testify/require"
)

// asLocker makes the test binary the command.
const asLocker = "LOCKER_TEST_AS_LOCKER"

func TestMain(m *testing.M) {
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
	os.Exit(m.Run())
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

func TestExitCodes(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	held, err := l.Lock(t.Context(), "held")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, held.Unlock(context.Background())) })
	file := filepath.Join(t.TempDir(), "locker.yaml")
	require.NoError(t, os.WriteFile(file, []byte("url: "+url+"\n"), 0o600))
	for name, c := range map[string]struct {
		args string
		url  string
		code int
		says string // on stderr
	}{
		"success":         {args: "run --key k -- true"},
		"its own":         {args: "run --key k -- sh -c exit\u00a07", code: 7},
		"its signal":      {args: "run --key k -- sh -c kill\u00a0-9\u00a0$$", code: 128 + 9},
		"flags of its":    {args: "run --key k expr --nonsense = --nonsense"},
		"a file":          {args: "run --config " + file + " --key k -- true", url: " "},
		"taken":           {args: "run --key held --wait 0 -- true", code: 124, says: held.Owner()},
		"taken for long":  {args: "run --key held --wait 200ms -- true", code: 124, says: "200ms"},
		"taken, own code": {args: "run --key held --wait 0 --conflict-exit-code 1 -- true", code: 1},
		"no server":       {args: "run --key k --wait 0 -- true", url: "setnx+unix:///nowhere.sock", code: 123, says: "nowhere.sock"},
		"not found":       {args: "run --key k -- nonsense-command", code: 127, says: "nonsense-command"},
		"not executable":  {args: "run --key k -- /etc/passwd", code: 126, says: "/etc/passwd"},
		"no command":      {args: "run --key k", code: 125, says: "COMMAND is missing"},
		"no key":          {args: "run -- true", code: 125, says: "--key is missing"},
		"no store":        {args: "run --key k -- true", url: " ", code: 125, says: "LOCKER_URL"},
		"in memory":       {args: "run --key k -- true", url: "memory://x", code: 125, says: "within one process"},
		"wrong strategy":  {args: "run --key k -- true", url: "none+redis://h", code: 125, says: `unknown strategy "none"`},
		"wrong flag":      {args: "run --nonsense", code: 125, says: "see locker run --help"},
		"wrong wait":      {args: "run --key k --wait -1s -- true", code: 125, says: "--wait"},
		"no such need":    {args: "compare --need fun", code: 125, says: "order, speed, throughput, contention, interop, failover"},
		"not comparable":  {args: "compare --strategies none", code: 125, says: "setnx, hashreentrant"},
		"not asked":       {args: "compare --url redis://localhost", code: 125, says: "--yes"},
		"out of reach":    {args: "compare --yes --report - --url redis://127.0.0.1:1", code: 123, says: "connection refused"},
		"no runs":         {args: "compare --runs 0", code: 125, says: "--runs=0: 1 to 1000"},
		"no report":       {args: "compare --report /nowhere/report.html", code: 125, says: "/nowhere"},
		"short TTL":       {args: "run --key k --ttl 10ms -- true", code: 125, says: "--ttl=10ms: 100ms to 24h"},
		"no hold":         {args: "run --key k --max-hold 0 -- true", code: 125, says: "--max-hold"},
		"a directory":     {args: "run --key k -- /etc", code: 126, says: "/etc"},
		"wrong command":   {args: "rum", code: 125, says: `"rum"`},
		"nothing":         {args: "", code: 125},
		"help":            {args: "run --help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.url == "" {
				c.url = url
			}
			args := strings.Fields(strings.ReplaceAll(c.args, "\u00a0", "\x01"))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x01", " ")
			}
			cmd := command(t, strings.TrimSpace(c.url), args...)
			require.NoError(t, cmd.Start())
			require.Equal(t, c.code, cmd.code(t), cmd.stderr)
			require.Contains(t, cmd.stderr.String(), c.says)
			require.NotContains(t, cmd.stderr.String(), "locker: locker:")
			if c.code == 0 {
				require.Empty(t, cmd.stderr.String())
			}
		})
	}
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
