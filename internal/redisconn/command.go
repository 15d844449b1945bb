package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Command runs a script. [Command.Prepare] makes it ready; the caller then appends keys and
// arguments to Words. It may be prepared anew when its result is known and it is not
// abandoned.
type Command struct {
	Script *Script
	Key    string // decides which server is sent the command
	Group  string // what the caller knows it by in [Conn.AwaitAbandoned]
	Urgent bool   // goes by a pipeline of its own: it does not queue behind others
	// Words are the words of the command, keys and arguments from the fourth on. A *string
	// or *int64 stands for its value, which must stay until the result is known; it saves
	// an allocation.
	Words []any

	run func() (any, error) // sends the command, where no pipeline does

	cmd   noRetry
	store redis.Cmd // cmd points to it
	reply any
	err   error
	done  chan struct{} // receives when the caller may return; holds one

	// The pipeline's mutex guards these until done has received.
	state     commandState
	place     int             // in the queue, counted from the pipeline's first command
	waiter    int             // index among the pipeline's waiters
	deadline  time.Time       // of the wait; zero: none
	closing   context.Context // ends the wait, too; nil: nothing does
	abandoned error           // why its caller returned without a result
	resolved  chan struct{}   // closed when the result of an abandoned command is known; nil: it is not abandoned
	expiry    time.Time       // when an abandoned command counts as resolved
}

type commandState uint8

const (
	queued commandState = iota
	sent
	answered
	abandoned // or taken off the queue before it was sent
)

// Prepare makes c a command that runs s on the server of key.
func (c *Command) Prepare(s *Script, key string) {
	done := c.done
	if done == nil {
		done = make(chan struct{}, 1)
	}
	*c = Command{Script: s, Key: key, Words: append(c.Words[:0], nil, nil, nil), done: done}
}

// SetKeys says that all words so far are keys.
func (c *Command) SetKeys() { c.Words[headWords-1] = len(c.Words) - headWords }

// Abandoned reports whether the caller of the command has returned before its reply.
func (c *Command) Abandoned() bool { return c.resolved != nil }

// newCommand returns a command that run sends.
func newCommand(run func() (any, error)) *Command {
	return &Command{run: run, done: make(chan struct{}, 1)}
}
