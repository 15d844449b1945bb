package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	startTimeout = 10 * time.Second // until PING answers
	stopTimeout  = 3 * time.Second  // from SIGTERM to SIGKILL
)

// A Server is a redis-server process. Its methods are safe for concurrent use.
type Server struct {
	cfg     config
	binary  binary
	runDir  string // socket and log, removed with the server
	dataDir string
	port    int // fixed for life, so that clients find a restarted server
	tls     *tlsFiles
	ports   []io.Closer // reserved for life
	started int         // the first process

	mu     sync.Mutex
	proc   *process // nil or exited when the server is down
	paused bool
}

func launch(opts []Option) (*Server, error) {
	sweepOnce()
	s := &Server{}
	for _, o := range opts {
		o(&s.cfg)
	}
	var err error
	if s.binary, err = findBinary(); err != nil {
		return nil, err
	}
	if s.runDir, err = makeRunDir(); err != nil {
		return nil, err
	}
	if s.dataDir = s.cfg.dir; s.dataDir == "" {
		s.dataDir = s.runDir
	}
	if s.cfg.tls {
		if s.tls, err = newTLSFiles(s.runDir); err != nil {
			s.discard()
			return nil, err
		}
	}
	if s.cfg.clock {
		if err = s.settableClock(); err != nil {
			s.discard()
			return nil, err
		}
	}
	// Between choosing a port and redis-server's bind another process may take it.
	for range 10 {
		if s.port, err = s.reservePort(); err != nil {
			break
		}
		if s.tls != nil {
			if s.tls.port, err = s.reservePort(); err != nil {
				break
			}
		}
		if err = s.up(time.Now().Add(startTimeout)); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		s.discard()
		return nil, err
	}
	s.started = s.proc.pid()
	return s, nil
}

// reservePort returns a free port, which is the server's until it is discarded.
func (s *Server) reservePort() (int, error) {
	port, reserved, err := freePort()
	if err == nil {
		s.ports = append(s.ports, reserved)
	}
	return port, err
}

var errPortTaken = errors.New("port is taken")

// up starts the process and waits until it answers.
func (s *Server) up(deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	logPath := filepath.Join(s.runDir, "redis.log")
	p, err := startProcess(s.binary.path, s.args(), s.cfg.env, s.runDir, logPath)
	if err != nil {
		return err
	}
	s.proc, s.paused = p, false
	// The socket is this server's alone, whereas a stranger may answer on the
	// port. It opens after the port was bound, so it vouches for both.
	err = awaitPing(s.Socket(), p.exited, deadline)
	if err == nil {
		return nil
	}
	p.kill()
	log, _ := os.ReadFile(logPath)
	if strings.Contains(string(log), "Address already in use") || strings.Contains(string(log), "Failed listening on port") {
		err = errPortTaken
	}
	return fmt.Errorf("%s on port %d: %w; its log:\n%s", s.binary.path, s.port, err, log)
}

func (s *Server) args() []string {
	args := []string{
		"--port", strconv.Itoa(s.port),
		"--bind", "127.0.0.1",
		"--unixsocket", s.Socket(),
		"--dir", s.dataDir,
		"--daemonize", "no",
		"--loglevel", "warning",
		"--logfile", "", // standard output, which goes to the log file
		"--tcp-backlog", "128",
		"--save", "",
		"--maxmemory-policy", "noeviction",
	}
	if s.cfg.aof {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if s.tls != nil {
		args = append(args, s.tls.args()...)
	}
	if s.cfg.sentinel {
		return slices.Concat([]string{s.sentinelConf(), "--sentinel"}, args, s.cfg.args)
	}
	if s.binary.atLeast(7, 0) { // older servers always allow DEBUG and do not know the setting
		args = append(args, "--enable-debug-command", "local")
	}
	return slices.Concat(args, s.cfg.args)
}

// Addr returns the host:port the server listens on.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Socket returns the path of the server's unix socket.
func (s *Server) Socket() string { return filepath.Join(s.runDir, "redis.sock") }

// URL returns the server's redis:// URL.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Options returns client options for the server's TCP address; the caller may
// change them.
func (s *Server) Options() *redis.Options { return &redis.Options{Addr: s.Addr()} }

// Client returns a new client with default options, closed when the test is over.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(s.Options())
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// PID returns the process id of the server, or of the last one when it is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Kill ends the server as a crash would, and returns when the process is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
}

// Stop shuts the server down in an orderly way, and returns when the process is gone.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.signal(sigCont) // a paused process would not see the request
	s.proc.signal(syscall.SIGTERM)
	select {
	case <-s.proc.exited:
	case <-time.After(stopTimeout):
		s.proc.kill()
	}
}

// Restart kills the server if it runs and starts it again on the same port. It
// keeps the data only WithAOF.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.Revive(); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

// Revive does the second half of Restart, for a server that was killed or stopped;
// one that runs it leaves alone.
func (s *Server) Revive() error {
	if s.running() {
		return nil
	}
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.up(deadline)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return fmt.Errorf("restart: %w", err)
		}
		time.Sleep(50 * time.Millisecond) // whoever borrowed the port gives it back
	}
}

// Persist makes a server that runs go on like one started WithAOF.
func (s *Server) Persist() error {
	c := s.admin()
	defer c.Close()
	ctx := context.Background()
	for _, setting := range [][2]string{{"appendfsync", "always"}, {"appendonly", "yes"}} {
		if err := c.ConfigSet(ctx, setting[0], setting[1]).Err(); err != nil {
			return fmt.Errorf("CONFIG SET %s: %w", setting[0], err)
		}
	}
	s.mu.Lock()
	s.cfg.aof = true
	s.mu.Unlock()
	// A write before the first file is complete is not in it.
	return until("the log is written", func(ctx context.Context) error {
		info, err := c.Info(ctx, "persistence").Result()
		if err == nil && (!strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0")) {
			err = errors.New("not yet")
		}
		return err
	})
}

// Pause freezes the server: connections stay open and nothing answers, until
// Resume. It returns when the process has stopped.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.signal(sigStop)
	s.proc.awaitStopped()
	s.paused = true
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.signal(sigCont)
	s.paused = false
}

// running reports whether there is a process, be it paused.
func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.proc.exited:
		return false
	default:
		return true
	}
}

// answers reports whether the process runs and is not paused.
func (s *Server) answers() bool {
	running := s.running()
	s.mu.Lock()
	defer s.mu.Unlock()
	return running && !s.paused
}

// discard ends the server for good.
func (s *Server) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.kill()
	}
	for _, reserved := range s.ports {
		_ = reserved.Close()
	}
	_ = os.RemoveAll(s.runDir)
}
