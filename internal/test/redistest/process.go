package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/child"
)

// A process is one run of redis-server.
type process struct {
	cmd     *exec.Cmd
	release func()
	exited  chan struct{} // closed once it is gone and reaped
}

func startProcess(path string, args, env []string, dir, logPath string) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if len(env) > 0 {
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	release, err := child.Spawn(cmd)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, release: release, exited: make(chan struct{})}
	go p.reap()
	return p, nil
}

func (p *process) reap() {
	_ = p.cmd.Wait() // being killed is how servers end here
	p.release()
	close(p.exited)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends sig; to a process that is gone it does nothing.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// kill works on paused processes too.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// awaitStopped returns when a process that was sent SIGSTOP has come to a halt.
func (p *process) awaitStopped() {
	for !stopped(p.pid()) && bound.Sleep(context.Background(), p.exited, 100*time.Microsecond) {
	}
}

// awaitPing returns nil once the server behind socket answers.
func awaitPing(socket string, exited <-chan struct{}, deadline time.Time) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := ping(socket, deadline)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer in time: %w", err)
		}
		if !bound.Sleep(context.Background(), exited, wait) {
			return errors.New("exited while starting")
		}
	}
}

func ping(socket string, deadline time.Time) error {
	conn, err := net.DialTimeout("unix", socket, time.Until(deadline))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if line = strings.TrimSpace(line); line == "+PONG" || strings.HasPrefix(line, "-NOAUTH") {
		return nil
	}
	return fmt.Errorf("PING answered %q", line) // LOADING, after a restart
}
