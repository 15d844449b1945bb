package soak

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/child"
)

// process is one run of a worker.
type process struct {
	*child.Child
	name       string // in reports
	spec       workerSpec
	release    func()        // to be called when it is reaped
	ready      chan struct{} // closed when it locks
	ended      chan struct{} // closed once it is reaped
	operations atomic.Int64  // calls, as it has told
	killed     instant       // when the nemesis decided to; 0: it did not
	frozen     spans
}

// startProcess starts this program as a worker that does not outlive it, not even frozen. It
// returns when the worker locks.
func startProcess(name string, spec workerSpec) (*process, error) {
	p := &process{name: name, spec: spec, ready: make(chan struct{}), ended: make(chan struct{})}
	stderr, err := os.Create(p.errPath())
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	p.Child, err = child.Start(workerKind, spec, func(cmd *exec.Cmd) (err error) {
		cmd.Env = append(cmd.Env, "GOTRACEBACK=all")
		cmd.Stderr = stderr
		yieldProcessors(cmd)
		p.release, err = child.Spawn(cmd)
		return err
	})
	if err != nil {
		return nil, err
	}
	go p.listen()
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s did not start: %s", name, p.stderr())
	case <-time.After(30 * time.Second):
		p.kill()
		return nil, fmt.Errorf("%s is not ready after half a minute: %s", name, p.stderr())
	}
}

// yieldProcessors makes the servers and the links come first where processors are short. Workers ask for all
// processors. At the same priority they slow the store down until a command takes as long as a TTL. Without the
// command nice the priority is the same.
func yieldProcessors(cmd *exec.Cmd) {
	if nice, err := exec.LookPath("nice"); err == nil {
		cmd.Args = append([]string{nice, "-n", "10", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = nice
	}
}

// listen reads how many calls the worker has made, until it has ended.
func (p *process) listen() {
	defer close(p.ended)
	lines := bufio.NewScanner(p)
	for first := true; lines.Scan(); first = false {
		if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			p.operations.Store(n)
		}
		if first {
			close(p.ready)
		}
	}
	_ = p.Wait() // ProcessState has the error
	p.release()
}

func (p *process) errPath() string { return p.spec.Log + ".err" }

// stderr returns the end of what the worker has printed.
func (p *process) stderr() string {
	b, _ := os.ReadFile(p.errPath())
	const most = 16 << 10
	return string(b[max(0, len(b)-most):])
}

// kill ends the worker as a crash would, unless it has ended.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.killed = now()
	p.Kill()
	<-p.ended
}

func (p *process) freeze() {
	p.frozen = append(p.frozen, span{from: now()})
	_ = p.Process.Signal(sigStop)
}

func (p *process) thaw() {
	_ = p.Process.Signal(sigCont)
	p.frozen[len(p.frozen)-1].to = now()
}

// finish asks the worker to let every caller finish and to end.
func (p *process) finish() { _ = p.Close() }

// await waits for the worker to end after finish, and says what went wrong.
func (p *process) await(patience time.Duration) string {
	select {
	case <-p.ended:
		if p.ProcessState == nil || !p.ProcessState.Success() {
			return fmt.Sprintf("%s ended: %v\n%s", p.name, p.ProcessState, p.stderr())
		}
		return ""
	case <-time.After(patience):
	}
	_ = p.Process.Signal(syscall.SIGQUIT) // so that it prints the stacks of its goroutines
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		p.kill()
	}
	return fmt.Sprintf("%s did not finish; its goroutines:\n%s", p.name, p.stderr())
}
