// Package child starts copies of a program by the program itself.
//
// There is one protocol. The environment of a child names its kind, which is what it is started
// for. Its standard input and output are pipes to its parent. The input begins with the child's
// spec, a line of JSON, which may hold passwords. The input ends when the parent closes it or dies,
// and the child ends then. A child ignores the signals that a terminal sends to a whole group of
// processes: the parent decides what they mean.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// env is set to the kind.
const env = "LOCKER_CHILD"

// Child is a child as its parent sees it. Reads are from its output, writes go to its input.
type Child struct {
	*exec.Cmd
	io.Reader
	io.WriteCloser
}

// Start starts this program as a child of the given kind. start is nil, or starts the command in
// place of [exec.Cmd.Start]. The child prints its errors to the parent's standard error unless
// start sets another Stderr.
func Start(kind string, spec any, start func(*exec.Cmd) error) (*Child, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("starting a %s: %w", kind, err)
	}
	c := &Child{cmd, out, in}
	if _, err := in.Write(append(text, '\n')); err != nil {
		return nil, fmt.Errorf("starting a %s: %w", kind, errors.Join(err, c.Stop(0)))
	}
	return c, nil
}

// Kill ends the child as kill -9 does.
func (c *Child) Kill() { _ = c.Process.Kill() }

// Stop closes the input of the child, kills it unless it ends within patience, and returns how it
// ended. Its output is lost unless it was read before.
func (c *Child) Stop(patience time.Duration) error {
	_ = c.Close()
	defer time.AfterFunc(patience, c.Kill).Stop()
	return c.Wait()
}

// Parent is the parent as a child sees it. Reads are from standard input, writes go to standard
// output.
type Parent struct {
	io.Reader
	io.WriteCloser
}

// Context returns a context that ends when the input does. It reads the input up.
func (p Parent) Context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, p)
		cancel()
	}()
	return ctx, cancel
}

// Serve does nothing unless [Start] has started this process as a child of this kind. It runs
// work then and exits: with 0, or with 1 after it has printed work's error.
func Serve[Spec any](kind string, work func(Parent, Spec) error) {
	if os.Getenv(env) != kind {
		return
	}
	_ = os.Unsetenv(env) // what this process starts is no such child
	// SIGPIPE: a child whose parent is gone may have something to clean up.
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
	in := bufio.NewReader(os.Stdin)
	var spec Spec
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &spec)
	}
	if err == nil {
		err = work(Parent{in, os.Stdout}, spec)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", kind, err)
		os.Exit(1)
	}
	os.Exit(0)
}
