// Package cli is what the programs of the examples begin with: flags, Ctrl-C, and exit codes.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Exit codes of a program.
const (
	OK          = 0
	Failed      = 1
	BadUsage    = 2
	Interrupted = 130 // by Ctrl-C
)

// ErrFailed is the error of a program that has already printed why it failed.
var ErrFailed = errors.New("failed")

// errUsage is the error of a command line that the flag package has complained about.
var errUsage = errors.New("bad usage")

// Program is a run of a program. It declares its flags, calls Parse and goes on.
type Program struct {
	*flag.FlagSet
	Stdout, Stderr io.Writer

	args []string
}

// Parse parses the command line, which has no arguments but flags. The program returns its error.
func (p *Program) Parse() error {
	switch err := p.FlagSet.Parse(p.args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	case p.NArg() > 0:
		return p.Misused("unexpected argument %q", p.Arg(0))
	}
	return nil
}

// Misused complains about the values of flags, and returns the error that the program is to return.
func (p *Program) Misused(format string, args ...any) error {
	fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name(), fmt.Sprintf(format, args...))
	return errUsage
}

// Main runs a program and exits. A first Ctrl-C ends ctx, a second one the program.
func Main(name string, run func(ctx context.Context, p *Program) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, name, run, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs a program and returns its exit code.
func Run(ctx context.Context, name string, run func(ctx context.Context, p *Program) error, args []string, stdout, stderr io.Writer) int {
	p := &Program{flag.NewFlagSet(name, flag.ContinueOnError), stdout, stderr, args}
	p.SetOutput(stderr)
	err := run(ctx, p)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return OK
	case errors.Is(err, errUsage):
		return BadUsage
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
		return Interrupted
	case errors.Is(err, ErrFailed):
		return Failed
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return Failed
	}
	return OK
}

// Sleep returns nil after d, or the cause of the end of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if !bound.Sleep(ctx, nil, d) {
		return context.Cause(ctx)
	}
	return nil
}
