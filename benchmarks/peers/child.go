package main

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"os/signal"
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

// spawn starts n children, which are killed by end, or when ctx is done.
func spawn(ctx context.Context, n int) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, kill := context.WithCancel(ctx)
	c := &crew{kill: kill}
	for range n {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), isChild+"=1")
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

// all calls a method of all children at once, with the same argument.
func (c *crew) all(method string, arg any, reply func(i int) any) error {
	calls := make(chan *rpc.Call, len(c.processes))
	for i, p := range c.processes {
		p.Go("Child."+method, arg, reply(i), calls)
	}
	var errs []error
	for range c.processes {
		errs = append(errs, (<-calls).Error)
	}
	return errors.Join(errs...)
}

func nothing(int) any { return nil }
