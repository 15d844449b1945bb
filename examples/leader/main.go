// Leader has three candidates, of whom one leads and writes to a ledger, and takes the
// leadership from them in two ways:
//
//   - A leader is paused between its last look at its lock and its write, as a process is by
//     SIGSTOP, by a suspended machine or by a long garbage collection. An operator takes it
//     for dead and takes its lock away. When it wakes up it writes, since no process could tell
//     it; the ledger refuses the write, for its token is smaller than the next leader's.
//   - A leader crashes. Its lock is free when the TTL is over, and another one leads.
//
// Start reading at candidate.go: a leader is a function with a context and a token.
//
//	go run ./examples/leader
//	go run ./examples/leader -url hashreentrant+redis://localhost:6379
//
// Without -url the candidates share a store in this process, as processes share a Redis.
// It ends by itself; the exit code is 0 when everything went as told, 1 when not, 2 for
// bad usage and 130 after Ctrl-C.
package main

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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("leader", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("url", "memory://leader", "the `URL` of a strategy")
	every := flags.Duration("every", 200*time.Millisecond, "time between two writes of a leader")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && (*every <= 0 || flags.NArg() > 0):
		fmt.Fprintln(stderr, "leader: -every is more than 0s, and there are no arguments but flags")
		return 2
	case err != nil:
		return 2
	}
	err := newShow(stdout, *every).play(ctx, *url)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "leader: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "leader:", err)
		return 1
	}
	return 0
}
