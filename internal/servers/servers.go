// Package servers starts the servers of lock stores that are installed on this machine, for tests
// and comparisons: PostgreSQL, MariaDB or MySQL, and etcd.
//
// A server ends, and its files go, with the process that started it, however that process ends.
// Its files and its socket are in a directory that only its user may enter. Its user is postgres,
// mysql or nobody where this process is root: the servers refuse to run as root.
package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotInstalled is matched by the errors of stores whose programs are missing.
var ErrNotInstalled = errors.New("not installed")

// Server is a server of its own.
type Server struct {
	Dir   string // its files and its socket
	About string // the program and its version
	PID   int
	Ports []int // on 127.0.0.1; those that are 0 are chosen by Start

	Settings []string // arguments of the program, besides those of all
	Env      []string // variables of the program, besides this process's

	kind
	run
}

// kind holds what differs between the servers of two stores.
type kind struct {
	program  string
	template string                 // the data of a new server; "" where the program makes them
	args     func(*Server) []string // of the program
	quit     syscall.Signal         // the signal that ends a server, and the processes it has started, at once
}

func (k kind) new(ports int, settings []string) (*Server, error) {
	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, About: version(k.program), Ports: make([]int, ports), Settings: settings, kind: k}
	if err := s.Fresh(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Data returns the directory of the server's data.
func (s *Server) Data() string { return filepath.Join(s.Dir, "data") }

// Fresh replaces the data of a server, which does not run, by those of a new one.
func (s *Server) Fresh() error {
	if err := os.RemoveAll(s.Data()); err != nil || s.template == "" {
		return err
	}
	return output(Command("cp", "-a", s.template, s.Data()))
}

// Stop ends the server and removes its files.
func (s *Server) Stop() {
	s.end()
	_ = os.RemoveAll(s.Dir)
}

func (s *Server) log() string { return filepath.Join(s.Dir, "log") }

// logged returns the end of the server's log.
func (s *Server) logged() string {
	text, _ := os.ReadFile(s.log())
	return string(text[max(0, len(text)-1000):])
}

func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// version returns what a program prints for --version.
func version(program string) string {
	out, _ := exec.Command(program, "--version").Output()
	line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), program+"  "), "\n")
	return line
}

// LeftOut reports whether LOCKER_POSTGRES=off, or LOCKER_MYSQL=off, leaves tests on that store out.
func LeftOut(store string) bool { return os.Getenv("LOCKER_"+strings.ToUpper(store)) == "off" }
