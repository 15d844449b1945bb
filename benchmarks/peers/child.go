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
	"runtime"
	"slices"
	"sync"
	"syscall"
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
		panic(err) // Child's methods are not those that rpc wants
	}
	server.ServeConn(stdio{os.Stdin, os.Stdout})
}

// A crew is the processes of one measurement, as their parent sees them.
type crew struct {
	processes []*rpc.Client
	kill      context.CancelFunc
	wg        sync.WaitGroup
}

// spawn starts n children, by another command if there is one. They are killed by end, or
// when ctx is done.
func spawn(ctx context.Context, n int, by ...string) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, kill := context.WithCancel(ctx)
	c := &crew{kill: kill}
	for range n {
		args := append(slices.Clone(by), self)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), isChild+"=1", fmt.Sprint("GOMAXPROCS=", runtime.GOMAXPROCS(0)))
		cmd.Stderr = os.Stderr
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
			c.end()
			return nil, err
		}
		c.processes = append(c.processes, rpc.NewClient(stdio{out, in}))
		c.wg.Go(func() { _ = cmd.Wait() }) // it is killed
	}
	return c, nil
}

func (c *crew) end() {
	c.kill()
	c.wg.Wait()
}

// call calls a method of all children at once, with the same argument.
func call[R any](c *crew, method string, arg any) ([]R, error) {
	replies, calls := make([]R, len(c.processes)), make(chan *rpc.Call, len(c.processes))
	for i, p := range c.processes {
		p.Go("Child."+method, arg, &replies[i], calls)
	}
	var errs []error
	for range replies {
		errs = append(errs, (<-calls).Error)
	}
	return replies, errors.Join(errs...)
}
