package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// isChild, in the environment, makes this program a process of a measurement, which
// serves its parent on standard input and output until the parent is gone.
const isChild = "LOCKER_PEERS_CHILD"

type stdio struct {
	io.Reader
	io.WriteCloser
}

func serveParent() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // the end of the input ends it
	server := rpc.NewServer()
	if err := server.Register(&Child{}); err != nil {
		panic(err)
	}
	server.ServeConn(stdio{os.Stdin, os.Stdout})
}

// A process is a child as its parent sees it.
type process struct {
	cmd *exec.Cmd
	rpc *rpc.Client
}

func spawn() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), isChild+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, rpc.NewClient(stdio{out, in})}, nil
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.rpc.Close()
	_ = p.cmd.Wait() // it was killed
}

// call returns when the child has answered or ctx is done.
func (p *process) call(ctx context.Context, method string, arg, reply any) error {
	select {
	case c := <-p.rpc.Go("Child."+method, arg, reply, make(chan *rpc.Call, 1)).Done:
		return c.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A crew is the processes of one measurement.
type crew []*process

func spawnCrew(n int) (c crew, err error) {
	for range n {
		p, err := spawn()
		if err != nil {
			c.end()
			return nil, err
		}
		c = append(c, p)
	}
	return c, nil
}

func (c crew) end() {
	for _, p := range c {
		p.end()
	}
}

// all calls f for all processes at once.
func (c crew) all(f func(i int, p *process) error) error {
	errs := make(chan error, len(c))
	for i, p := range c {
		go func() { errs <- f(i, p) }()
	}
	var all []error
	for range c {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// cpuTime is the processors' time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("getrusage: %v", err)) // it has no reason to fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
