package main

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os/exec"
	"runtime"
	"slices"

	"github.com/distlock/locker/internal/child"
)

const workerKind = "peers worker"

// serveParent does not return in a process of a measurement.
func serveParent() {
	child.Serve(workerKind, func(parent child.Parent, _ struct{}) error {
		server := rpc.NewServer()
		if err := server.Register(&Child{}); err != nil {
			return err
		}
		server.ServeConn(parent)
		return nil
	})
}

// A crew is the processes of one measurement, as their parent sees them.
type crew []member

type member struct {
	*child.Child
	*rpc.Client
}

// spawn starts n children, by another command if there is one. They are killed by end, or
// when ctx is done.
func spawn(ctx context.Context, n int, by ...string) (c crew, err error) {
	for range n {
		p, err := child.Start(workerKind, struct{}{}, func(cmd *exec.Cmd) error {
			if len(by) > 0 {
				other := exec.Command(by[0], append(slices.Clone(by[1:]), cmd.Path)...)
				cmd.Path, cmd.Args, cmd.Err = other.Path, other.Args, other.Err
			}
			cmd.Env = append(cmd.Env, fmt.Sprint("GOMAXPROCS=", runtime.GOMAXPROCS(0)))
			return cmd.Start()
		})
		if err != nil {
			c.end()
			return nil, err
		}
		context.AfterFunc(ctx, p.Kill)
		c = append(c, member{p, rpc.NewClient(p)})
	}
	return c, nil
}

// end kills the children.
func (c crew) end() {
	for _, m := range c {
		_ = m.Stop(0)
	}
}

// call calls a method of all children at once, with the same argument.
func call[R any](c crew, method string, arg any) ([]R, error) {
	replies, calls := make([]R, len(c)), make(chan *rpc.Call, len(c))
	for i, m := range c {
		m.Go("Child."+method, arg, &replies[i], calls)
	}
	var errs []error
	for range replies {
		errs = append(errs, (<-calls).Error)
	}
	return replies, errors.Join(errs...)
}
