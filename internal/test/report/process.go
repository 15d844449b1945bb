//go:build unix

package report

import (
	"errors"
	"fmt"
	"net/rpc"
	"os/exec"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/child"
)

// Process is a holder, or the next one, as the parent sees it.
type Process struct {
	child *child.Child
	rpc   *rpc.Client
	dead  bool
}

func start(s Subject, t Target, ttl time.Duration) (*Process, error) {
	c, err := child.Start(workerKind, workerSpec{s.Name, t, ttl}, func(cmd *exec.Cmd) error {
		// In a process group of its own it goes on, and ends, when this process dies while it is stopped.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd.Start()
	})
	if err != nil {
		return nil, err
	}
	return &Process{child: c, rpc: rpc.NewClient(c)}, nil
}

// Lock takes a lock.
func (p *Process) Lock(key string, wait time.Duration) (s State, err error) {
	return s, p.rpc.Call("Worker.Lock", Request{key, wait}, &s)
}

// State is what the library answered so far.
func (p *Process) State(key string) (s State, err error) {
	return s, p.rpc.Call("Worker.State", key, &s)
}

// Unlock gives a lock back.
func (p *Process) Unlock(key string) error {
	return p.rpc.Call("Worker.Unlock", key, &struct{}{})
}

// Pause stops the process between a question and a write. It returns when the process stands still;
// the write is there after Continue.
func (p *Process) Pause(key string) (*rpc.Call, *Late, error) {
	late := &Late{}
	call := p.rpc.Go("Worker.Pause", key, late, make(chan *rpc.Call, 1))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.child.Process.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.child.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		return nil, nil, fmt.Errorf("the process did not stop but %v: %w", status, err)
	}
	return call, late, nil
}

// Continue lets the process go on.
func (p *Process) Continue() error { return p.child.Process.Signal(syscall.SIGCONT) }

// Work makes the process lock and unlock.
func (p *Process) Work(s Sections) (c Counted, err error) {
	return c, p.rpc.Call("Worker.Work", s, &c)
}

// Kill is kill -9.
func (p *Process) Kill() {
	p.dead = true
	p.child.Kill()
	_ = p.child.Wait()
}
