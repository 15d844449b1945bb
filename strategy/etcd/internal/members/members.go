// Package members starts members of etcd clusters for the tests of strategy/etcd: processes of
// internal/member, which it compiles, or of the etcd that LOCKER_ETCD_SERVER names.
package members

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// source returns the directory of internal/member, which is looked for from the working directory upwards.
func source() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		member := filepath.Join(dir, "internal", "member")
		if _, err := os.Stat(member); err == nil {
			return member, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no internal/member: want a working directory in strategy/etcd")
		}
	}
	return "", err
}

// made holds the result of base, once it was called.
var made string

// base is a directory with a short name, for sockets are in it, and internal/member, compiled.
var base = sync.OnceValues(func() (string, error) {
	member, err := source()
	if err == nil {
		made, err = os.MkdirTemp("", "etcd")
	}
	if err != nil {
		return "", err
	}
	if Released() {
		return made, sweep(made)
	}
	build := exec.Command("go", "-C", member, "build", "-trimpath", "-o", filepath.Join(made, "member"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return made, nil
})

// Tests is a *testing.M, or what a program does, and removes what this package has made after it.
type Tests struct{ M interface{ Run() int } }

// Run runs M.
func (t Tests) Run() int {
	defer func() {
		for _, s := range idle.all {
			s.Kill()
		}
		if made != "" {
			_ = os.RemoveAll(made)
		}
	}()
	return t.M.Run()
}

// Server is a member of a cluster, a process of its own. It ends with this one.
type Server struct {
	Name, dir string // dir is the cluster's
	cluster   string
	Existing  bool // it joins a cluster that there is
	cmd       *exec.Cmd
	in        io.WriteCloser
	stdout    io.Reader
	out       *bufio.Scanner
	words     *lastWords
}

// Launch makes a cluster of n members, each with an empty store.
func Launch(n int) ([]*Server, error) {
	dir, err := base()
	if err == nil {
		dir, err = os.MkdirTemp(dir, "")
	}
	if err != nil {
		return nil, err
	}
	var all []*Server
	var cluster []string
	for i := range n {
		s := &Server{Name: "m" + strconv.Itoa(i), dir: dir}
		all, cluster = append(all, s), append(cluster, s.Name+"=unix://"+s.Name+":2")
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

// StopAll ends members of one cluster and removes their data.
func StopAll(all []*Server) {
	for _, s := range all {
		s.Kill()
	}
	_ = os.RemoveAll(all[0].dir)
}

// begin starts the process.
func (s *Server) begin() error {
	dir := filepath.Dir(s.dir)
	config, err := json.Marshal(map[string]any{"Base": dir, "Name": s.Name, "Dir": s.Data(), "Cluster": s.cluster, "Existing": s.Existing})
	if err != nil {
		return err
	}
	s.words = &lastWords{}
	s.cmd = exec.Command(filepath.Join(dir, "member"), string(config))
	program := os.Getenv(releasedEnv)
	if program != "" {
		s.cmd = s.released(program)
	}
	for _, socket := range []string{":1", ":2"} { // an etcd of 3.4 that was killed leaves them, and does not start beside them
		_ = os.Remove(filepath.Join(s.dir, s.Name+socket))
	}
	s.cmd.Dir, s.cmd.Stderr = s.dir, s.words
	// In a group of its own it is woken, and ended, when this process ends while it is stopped.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if s.stdout, err = s.cmd.StdoutPipe(); err != nil {
		return err
	}
	s.out = bufio.NewScanner(s.stdout)
	if err := s.cmd.Start(); err != nil || program == "" {
		return err
	}
	return s.note()
}

// ready returns when the member serves.
func (s *Server) ready() error {
	if Released() {
		return s.serves()
	}
	// A member that cannot join waits for ever.
	defer time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() }).Stop()
	if !s.out.Scan() || s.out.Text() != "ready" {
		return fmt.Errorf("the member %s ended, or did not serve within a minute: %s", s.Name, s.words)
	}
	return nil
}

// Start starts a member that was killed, and returns when it serves.
func (s *Server) Start() error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.ready()
}

// Tell has the member do a command.
func (s *Server) Tell(command string) error {
	if Released() {
		return ErrReleased
	}
	if _, err := fmt.Fprintln(s.in, command); err != nil {
		return err
	}
	if !s.out.Scan() {
		return fmt.Errorf("the member %s ended: %s", s.Name, s.words)
	}
	return nil
}

// Data returns the directory of its data.
func (s *Server) Data() string { return filepath.Join(s.dir, s.Name) }

// Socket returns where clients find it.
func (s *Server) Socket() string { return filepath.Join(s.dir, s.Name+":1") }

// Endpoint returns Socket for clientv3.
func (s *Server) Endpoint() string { return "unix:" + s.Socket() }

// Kill ends it by kill -9, and forgets nothing.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Wipe deletes the data of a member that was killed.
func (s *Server) Wipe() error { return os.RemoveAll(s.Data()) }

// Freeze returns when all threads of the member stand still.
func (s *Server) Freeze() {
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

// PID returns the number of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Thaw lets a frozen member run on.
func (s *Server) Thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

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
	all []*Server
}

// Take returns a cluster of one, whose store is empty; Put takes it back.
func Take() (*Server, error) {
	idle.mu.Lock()
	if n := len(idle.all); n > 0 {
		defer idle.mu.Unlock()
		s := idle.all[n-1]
		idle.all = idle.all[:n-1]
		return s, nil
	}
	idle.mu.Unlock()
	all, err := Launch(1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Put takes back a server, unless it is hurt or cannot be emptied.
func Put(s *Server, hurt bool) {
	if !hurt {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if client, err := Dial(s); err == nil {
			err = Empty(ctx, client)
			_ = client.Close()
			if err == nil {
				idle.mu.Lock()
				defer idle.mu.Unlock()
				idle.all = append(idle.all, s)
				return
			}
		}
	}
	StopAll([]*Server{s})
}

// Empty deletes all leases and keys.
func Empty(ctx context.Context, client *clientv3.Client) error {
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

// Dial makes a client of members.
func Dial(members ...*Server) (*clientv3.Client, error) {
	cfg := clientv3.Config{Logger: zap.NewNop()}
	for _, s := range members {
		cfg.Endpoints = append(cfg.Endpoints, s.Endpoint())
	}
	return clientv3.New(cfg)
}
