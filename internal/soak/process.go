package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one run of a worker.
type process struct {
	name  string // as in the timeline
	index int
	spec  workerSpec
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  chan string   // closed when it has ended
	ended chan struct{} // closed once it is reaped

	mu     sync.Mutex
	killed instant // when it was decided; 0: it was not
	frozen []span
}

// startProcess starts this program as a worker, and returns when it locks.
func startProcess(name string, spec workerSpec) (*process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, index: spec.Process, spec: spec, said: make(chan string, 8), ended: make(chan struct{})}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text), "GOTRACEBACK=all")
	stderr, err := os.Create(p.errPath())
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	p.cmd.Stderr = stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := spawn(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said <- lines.Text()
		}
		_ = p.cmd.Wait() // state has it
		close(p.said)
	}()
	if _, err := p.hear(sayReady, 30*time.Second); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) errPath() string { return p.spec.Log + ".err" }

// tell says a line to the worker.
func (p *process) tell(line string) { _, _ = fmt.Fprintln(p.in, line) } // hear finds out if it is gone

// hear waits for a line that begins with want.
func (p *process) hear(want string, patience time.Duration) (string, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.said:
		switch {
		case !ok:
			return "", fmt.Errorf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.stderr())
		case !strings.HasPrefix(line, want):
			return "", fmt.Errorf("%s said %q instead of %q", p.name, line, want)
		}
		return line, nil
	case <-timer.C:
		return "", fmt.Errorf("%s did not say %q within %v", p.name, want, patience)
	}
}

// stderr is the end of what the worker has printed.
func (p *process) stderr() string {
	b, _ := os.ReadFile(p.errPath())
	const most = 16 << 10
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}

// complaint is what the worker has printed about op.
func (p *process) complaint(op uint32) string {
	about := fmt.Sprintf("op %d: ", op)
	for line := range strings.Lines(p.stderr()) {
		if strings.HasPrefix(line, about) {
			return strings.TrimSpace(line)
		}
	}
	return "see " + p.errPath()
}

// kill ends the worker as a crash would, unless it has ended.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.mu.Lock()
	if p.killed == 0 {
		p.killed = now()
	}
	p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	p.reap()
}

func (p *process) reap() {
	for range p.said { // nobody listens any more
	}
	<-p.ended
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = append(p.frozen, span{from: now()})
	_ = p.cmd.Process.Signal(sigStop)
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(sigCont)
	p.frozen[len(p.frozen)-1].to = now()
}

// dump has the worker end with the stacks of its goroutines in its stderr.
func (p *process) dump() string {
	_ = p.cmd.Process.Signal(sigQuit)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
	return p.stderr()
}

// crashed says how the worker ended if it was not killed; "" if it runs, or was.
func (p *process) crashed() string {
	p.mu.Lock()
	killed := p.killed != 0
	p.mu.Unlock()
	select {
	case <-p.ended:
		if !killed && (p.cmd.ProcessState == nil || !p.cmd.ProcessState.Success()) {
			return fmt.Sprintf("%v\n%s", p.cmd.ProcessState, p.stderr())
		}
	default:
	}
	return ""
}
