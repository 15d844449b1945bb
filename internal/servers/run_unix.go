//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is for a server that starts on a busy machine.
const patience = time.Minute

// run is one run of a server.
type run struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// base makes the directory of all servers, and starts a shell that waits for the end of this
// process. The shell ends all servers then, and removes their files.
var base = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "locker") // a short name: the path of a socket has some hundred bytes
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // the servers' user passes through it
		return "", err
	}
	shell := exec.Command("/bin/sh", "-c", `read -r _; for f in "$0"/*/*.pid; do
		read -r pid signal <"$f" && kill -CONT "$pid" && kill "-${signal:-9}" "$pid"; done 2>/dev/null; sleep 1; rm -rf "$0"`, dir)
	shell.Dir, shell.SysProcAttr = "/", &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	if lifeline, err = shell.StdinPipe(); err != nil {
		return "", err
	}
	return dir, shell.Start()
})

// lifeline is the standard input of base's shell. It ends with this process.
var lifeline io.Closer //nolint:unused // kept open

var made atomic.Int64

// newDir makes a directory for a server.
func newDir() (string, error) {
	parent, err := base()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, strconv.FormatInt(made.Add(1), 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if as := serverUser(); as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}
	return dir, err
}

// serverUser returns the servers' user where this process is root.
var serverUser = sync.OnceValue(func() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "mysql", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
})

// Command returns a command that runs as the servers' user. Ctrl-C does not reach it.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setpgid: true, Credential: serverUser()}
	return cmd
}

// Start starts the server and returns when ready does without an error. It calls ready until then,
// for a minute at most.
func (s *Server) Start(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for try := 1; ; try++ {
		chosen, err := s.choosePorts()
		if err == nil {
			err = s.start()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.About, err)
		}
		if err = s.await(ctx, ready); err == nil {
			return nil
		}
		s.Crash()
		log := s.logged()
		if !chosen || try == 5 || !strings.Contains(log, "in use") {
			return fmt.Errorf("%s did not start: %w: %s", s.About, err, log)
		}
		clear(s.Ports) // another process has one of them by now
		_ = os.Remove(s.log())
	}
}

func (s *Server) choosePorts() (chosen bool, err error) {
	for i, port := range s.Ports {
		if port != 0 {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return false, err
		}
		defer l.Close() // after the last choice: no two are the same
		s.Ports[i], chosen = l.Addr().(*net.TCPAddr).Port, true
	}
	return chosen, nil
}

func (s *Server) start() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The file is there before the program is: base's shell finds all that runs.
	const shell = `echo "$$ $0" >"$1" && shift && exec "$@"`
	args := append(s.args(s), s.Settings...)
	s.cmd, s.ended = Command("/bin/sh", append([]string{"-c", shell, strconv.Itoa(int(s.quit)), s.pidFile(), s.program}, args...)...), make(chan struct{})
	s.cmd.Env = append(os.Environ(), s.Env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	s.PID = s.cmd.Process.Pid
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // servers end by signals here
		_ = os.Remove(s.pidFile())
	}(s.cmd, s.ended)
	return nil
}

func (s *Server) pidFile() string { return filepath.Join(s.Dir, "server.pid") }

// await calls ready until it succeeds: no server reports by itself that it takes connections.
func (s *Server) await(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.Join(errors.New("it has ended"), err)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end ends the server at once.
func (s *Server) end() {
	s.Thaw()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(s.quit)
	}
	s.wait()
}

func (s *Server) wait() {
	if s.cmd != nil {
		<-s.ended
	}
}

// Crash kills the server and all its processes, and returns when they have ended. What PostgreSQL has of the system's shared
// memory goes with them: a process that still uses it would keep the next server from starting.
func (s *Server) Crash() {
	lines, _ := os.ReadFile(filepath.Join(s.Data(), "postmaster.pid"))
	if s.cmd != nil {
		s.killChildren()
		_ = s.cmd.Process.Kill()
	}
	s.wait()
	if lines := strings.Split(string(lines), "\n"); len(lines) > 6 {
		if ids := strings.Fields(lines[6]); len(ids) == 2 {
			_ = exec.Command("ipcrm", "-m", ids[1]).Run()
		}
	}
}

// killChildren kills what the server has started. The server stands still meanwhile, so that it starts no more, and
// stays the parent by which processes finds them.
func (s *Server) killChildren() {
	s.Freeze()
	for {
		all, _ := s.processes()
		children := slices.DeleteFunc(all, func(pid int) bool { return pid == s.PID })
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		runtime.Gosched()
	}
}

// Freeze returns when all processes of the server stand still.
func (s *Server) Freeze() {
	for {
		s.signal(syscall.SIGSTOP)
		if all, stopped := s.processes(); stopped == len(all) {
			return
		}
		runtime.Gosched()
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// signal sends sig to all processes of the server, and first to the one that starts the others.
func (s *Server) signal(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	all, _ := s.processes()
	for _, pid := range all {
		_ = syscall.Kill(pid, sig)
	}
}

// processes returns the processes of the server that run, and how many of them are stopped. It
// finds none on systems without /proc.
func (s *Server) processes() (all []int, stopped int) {
	s.stats(func(pid int, fields []string) {
		all = append(all, pid)
		if fields[0] == "T" {
			stopped++
		}
	})
	return all, stopped
}

// CPU returns how long the server's processes have worked. It is 0 on systems without /proc.
func (s *Server) CPU() (worked time.Duration) {
	const tick = 10 * time.Millisecond // on each system that Go runs on
	s.stats(func(_ int, fields []string) {
		for _, ticks := range fields[11:15] { // its own, and those of children that have ended
			n, _ := strconv.Atoi(ticks)
			worked += time.Duration(n) * tick
		}
	})
	return worked
}

// stats calls f with the number of each process of the server that runs, and what /proc/PID/stat has behind its
// name: state, parent, ...
func (s *Server) stats(f func(pid int, fields []string)) {
	parent := strconv.Itoa(s.PID)
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid := filepath.Base(filepath.Dir(name))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if pid != parent && fields[1] != parent || fields[0] == "Z" {
			continue
		}
		n, _ := strconv.Atoi(pid)
		f(n, fields)
	}
}
