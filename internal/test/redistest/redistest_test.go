//go:build unix

package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/internal/test/redistest"
)

func TestStartInParallel(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			c := s.Client(t)
			if n, err := c.Incr(t.Context(), "n").Result(); n != 1 || err != nil {
				t.Fatalf("INCR on a fresh server: %d, %v", n, err)
			}
			unix := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
			defer unix.Close()
			if n, err := unix.Get(t.Context(), "n").Int(); n != 1 || err != nil {
				t.Fatalf("GET over the socket: %d, %v", n, err)
			}
			opts, err := redis.ParseURL(s.URL())
			if err != nil || opts.Addr != s.Addr() {
				t.Fatalf("URL %q gives %v, %v", s.URL(), opts, err)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	s := redistest.Start(t, redistest.WithConfig("--maxmemory", "8mb", "--loglevel", "verbose"))
	for name, want := range map[string]string{
		"maxmemory":        "8388608",
		"maxmemory-policy": "noeviction",
		"loglevel":         "verbose",
		"save":             "",
		"appendonly":       "no",
	} {
		got, err := s.Client(t).ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != want {
			t.Errorf("CONFIG GET %s = %q, %v; want %q", name, got[name], err, want)
		}
	}
}

func TestNoProcessIsLeft(t *testing.T) {
	ends := map[string]func(*redistest.Server){
		"cleanup": func(*redistest.Server) {},
		"stop":    (*redistest.Server).Stop,
		"kill":    (*redistest.Server).Kill,
		"pause":   (*redistest.Server).Pause,
		"paused and stopped": func(s *redistest.Server) {
			s.Pause()
			s.Stop()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			var pid int
			var dir string
			t.Run("server", func(t *testing.T) {
				s := redistest.Start(t)
				pid, dir = s.PID(), strings.TrimSuffix(s.Socket(), "/redis.sock")
				end(s)
			})
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d after the end of the test: %v", pid, err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("directory %s after the end of the test: %v", dir, err)
			}
		})
	}
}

func TestRestart(t *testing.T) {
	ends := map[string]func(*redistest.Server){
		"running": func(*redistest.Server) {},
		"killed":  (*redistest.Server).Kill,
		"stopped": (*redistest.Server).Stop,
	}
	for name, end := range ends {
		for _, aof := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, AOF %t", name, aof), func(t *testing.T) {
				t.Parallel()
				opts := []redistest.Option{redistest.WithDir(t.TempDir())}
				if aof {
					opts = append(opts, redistest.WithAOF())
				}
				s := redistest.Start(t, opts...)
				c := s.Client(t)
				if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
					t.Fatal(err)
				}
				addr, pid := s.Addr(), s.PID()
				end(s)
				s.Restart(t)
				if s.Addr() != addr || s.PID() == pid {
					t.Errorf("address %s, process %d; they were %s, %d", s.Addr(), s.PID(), addr, pid)
				}
				n, err := c.Exists(t.Context(), "k").Result()
				if err != nil || (n == 1) != aof {
					t.Errorf("%d keys after the restart, %v", n, err)
				}
			})
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	opts := s.Options()
	opts.ReadTimeout, opts.MaxRetries = 100*time.Millisecond, -1
	c := redis.NewClient(opts)
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	var timeout net.Error
	if err := c.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("PING to a paused server: %v, want a timeout", err)
	}
	s.Resume()
	opts.ReadTimeout = 5 * time.Second
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Resume: %v", err)
	}
}

func TestSharedIsOneServer(t *testing.T) {
	if a, b := redistest.Shared(t), redistest.Shared(t); a != b {
		t.Errorf("two servers: %s and %s", a.Addr(), b.Addr())
	}
}

const childEnv = "REDISTEST_CHILD"

// TestChild is run by the tests below in a process of its own; otherwise it
// does nothing.
func TestChild(t *testing.T) {
	switch os.Getenv(childEnv) {
	case "serve":
		fmt.Println("shared", redistest.Shared(t).Addr())
		fmt.Println("own", redistest.Start(t).Addr())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is done
	case "bad config":
		redistest.Start(t, redistest.WithConfig("--no-such-setting", "1"))
	case "no binary":
		redistest.Shared(t)
	}
}

func childCommand(t *testing.T, mode string, env ...string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	child.Env = append(append(os.Environ(), childEnv+"="+mode), env...)
	return child
}

func TestStartFailureSaysWhy(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"bad config": {"no-such-setting", "Bad directive"},
		"no binary":  {"/nonexistent/redis", "make redis", "apt-get install redis-server", "LOCKER_REDIS_SERVER"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var env []string
			if mode == "no binary" {
				env = append(env, "LOCKER_REDIS_SERVER=/nonexistent/redis")
			}
			out, err := childCommand(t, mode, env...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestChild") {
				t.Fatalf("the test did not fail: %v\n%s", err, out)
			}
			for _, w := range want {
				if !strings.Contains(string(out), w) {
					t.Errorf("no %q in the message:\n%s", w, out)
				}
			}
		})
	}
}

func TestDiesWithTheTestProcess(t *testing.T) {
	t.Parallel()
	child := childCommand(t, "serve")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	addrs := map[string]string{}
	for lines := bufio.NewScanner(stdout); len(addrs) < 2 && lines.Scan(); {
		if kind, addr, ok := strings.Cut(lines.Text(), " "); ok && (kind == "shared" || kind == "own") {
			addrs[kind] = addr
		}
	}
	for kind, addr := range addrs {
		if err := dial(t.Context(), addr); err != nil {
			t.Errorf("the %s server before the kill: %v", kind, err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	if len(addrs) != 2 {
		t.Fatalf("the child started %v, want two servers", addrs)
	}
	// The orphans' process ids may linger as zombies; their ports do not.
	deadline := time.Now().Add(5 * time.Second)
	for kind, addr := range addrs {
		for dial(t.Context(), addr) == nil {
			if time.Now().After(deadline) {
				t.Fatalf("the %s server outlives its test process", kind)
			}
			time.Sleep(5 * time.Millisecond) // the end of another process's child is no event here
		}
	}
}

func dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestPersist(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, ctx := s.Client(t), t.Context()
	if err := c.Set(ctx, "before", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(ctx, "after", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Revive(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Exists(ctx, "before", "after").Result(); err != nil || n != 2 {
		t.Errorf("%d keys are left of two, %v", n, err)
	}
	pid := s.PID()
	if err := s.Revive(); err != nil || s.PID() != pid {
		t.Errorf("Revive of a server that runs: %v", err)
	}
}

func TestSetClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithSettableClock())
	c, ctx := s.Client(t), t.Context()
	if err := c.Set(ctx, "k", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	s.SetClock(t, -time.Hour)
	if ttl, err := c.TTL(ctx, "k").Result(); err != nil || ttl < time.Hour {
		t.Errorf("an hour earlier a minute's key lives for %v, %v", ttl, err)
	}
	s.SetClock(t, time.Hour)
	if n, err := c.Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("an hour later a minute's key is there: %d, %v", n, err)
	}
}

// The port of a server that is down goes to no other, and is free again when the server's test is over.
func TestPortIsReserved(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("down", func(t *testing.T) {
		s := redistest.Start(t)
		s.Kill()
		addr = s.Addr()
		_, err := net.ListenPacket("udp", addr)
		if err == nil {
			t.Errorf("%s is not reserved", addr)
		}
	})
	reserved, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = reserved.Close()
}
