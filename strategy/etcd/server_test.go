package etcd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// base is a directory with a short name, for sockets are in it, and internal/member, compiled.
var base = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "-C", "internal/member", "build", "-trimpath", "-o", filepath.Join(dir, "member"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return dir, nil
})

// tests removes base after the tests.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer func() {
		for _, s := range idle.all {
			s.kill()
		}
		if dir, err := base(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}()
	return t.M.Run()
}

// server is a member of a cluster, a process of its own. It ends with this one.
type server struct {
	name, dir string // dir is the cluster's
	cluster   string
	existing  bool
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner
	words     *lastWords
}

// launch makes a cluster of n members, each with an empty store.
func launch(n int) ([]*server, error) {
	dir, err := base()
	if err == nil {
		dir, err = os.MkdirTemp(dir, "")
	}
	if err != nil {
		return nil, err
	}
	var all []*server
	var cluster []string
	for i := range n {
		s := &server{name: "m" + strconv.Itoa(i), dir: dir}
		all, cluster = append(all, s), append(cluster, s.name+"=unix://"+s.name+":2")
	}
	for _, s := range all {
		s.cluster = strings.Join(cluster, ",")
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.ready(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func stopAll(all []*server) {
	for _, s := range all {
		s.kill()
	}
	_ = os.RemoveAll(all[0].dir)
}

// begin starts the process.
func (s *server) begin() error {
	dir := filepath.Dir(s.dir)
	config, err := json.Marshal(map[string]any{"Base": dir, "Name": s.name, "Dir": s.data(), "Cluster": s.cluster, "Existing": s.existing})
	if err != nil {
		return err
	}
	s.words = &lastWords{}
	s.cmd = exec.Command(filepath.Join(dir, "member"), string(config))
	s.cmd.Dir, s.cmd.Stderr = s.dir, s.words
	// In a group of its own it is woken, and ended, when this process ends while it is stopped.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = bufio.NewScanner(out)
	return s.cmd.Start()
}

// ready returns when the member serves.
func (s *server) ready() error {
	if !s.out.Scan() || s.out.Text() != "ready" {
		return fmt.Errorf("the member %s ended: %s", s.name, s.words)
	}
	return nil
}

func (s *server) start() error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.ready()
}

// tell has the member do a command.
func (s *server) tell(command string) error {
	if _, err := fmt.Fprintln(s.in, command); err != nil {
		return err
	}
	if !s.out.Scan() {
		return fmt.Errorf("the member %s ended: %s", s.name, s.words)
	}
	return nil
}

func (s *server) data() string   { return filepath.Join(s.dir, s.name) }
func (s *server) socket() string { return filepath.Join(s.dir, s.name+":1") }

func (s *server) endpoint() string { return "unix:" + s.socket() }

// kill is kill -9, and forgets nothing.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) wipe() error { return os.RemoveAll(s.data()) }

// freeze returns when all threads of the member stand still.
func (s *server) freeze() {
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		running := false
		for _, name := range names {
			stat, err := os.ReadFile(name)
			running = running || err == nil && !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T")
		}
		if !running {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *server) thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// lastWords keeps the end of what a member logs.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-4096):]
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

// idle are servers that a test has left as it found them: an etcd takes a second to start.
var idle struct {
	mu  sync.Mutex
	all []*server
}

func takeServer() (*server, error) {
	idle.mu.Lock()
	if n := len(idle.all); n > 0 {
		defer idle.mu.Unlock()
		s := idle.all[n-1]
		idle.all = idle.all[:n-1]
		return s, nil
	}
	idle.mu.Unlock()
	all, err := launch(1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// putServer takes back a server, unless it is hurt or cannot be emptied.
func putServer(s *server, hurt bool) {
	if !hurt {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if client, err := dial(s); err == nil {
			err = empty(ctx, client)
			_ = client.Close()
			if err == nil {
				idle.mu.Lock()
				defer idle.mu.Unlock()
				idle.all = append(idle.all, s)
				return
			}
		}
	}
	stopAll([]*server{s})
}

// empty deletes all leases and keys.
func empty(ctx context.Context, client *clientv3.Client) error {
	leases, err := client.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		_, _ = client.Revoke(ctx, l.ID) // or it has just ended
	}
	_, err = client.Delete(ctx, "", clientv3.WithFromKey())
	return err
}

// newServer is one for a test.
func newServer(t *testing.T) *server {
	t.Helper()
	s, err := takeServer()
	require.NoError(t, err)
	t.Cleanup(func() { putServer(s, false) })
	return s
}

func dial(members ...*server) (*clientv3.Client, error) {
	cfg := clientv3.Config{Logger: zap.NewNop()}
	for _, s := range members {
		cfg.Endpoints = append(cfg.Endpoints, s.endpoint())
	}
	return clientv3.New(cfg)
}

func newClient(t testing.TB, members ...*server) *clientv3.Client {
	t.Helper()
	client, err := dial(members...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
