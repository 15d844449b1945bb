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
// It ends by itself; the exit code is 0 when all of this happened, 1 when not, 2 for
// bad usage and 130 after Ctrl-C.
package main

import (
	"context"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
)

func main() { cli.Main("leader", run) }

func run(ctx context.Context, p *cli.Program) error {
	url := p.String("url", "memory://leader", "the `URL` of a strategy")
	every := p.Duration("every", 200*time.Millisecond, "time between two writes of a leader")
	if err := p.Parse(); err != nil {
		return err
	}
	if *every <= 0 {
		return p.Misused("-every is more than 0s")
	}
	return newShow(p.Stdout, *every).play(ctx, *url)
}
