package redisconn

import (
	"context"
	"strings"
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
	abandoned // its caller has returned; Abandoned reports only those that were sent
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

// noRetry is a command that go-redis must not send twice by itself.
type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

// unreached gives the command the error with which its pipeline ended, if it has neither an error nor a reply of its own:
// go-redis leaves the commands as they are if the server refused the connection. No script replies nil.
func (c noRetry) unreached(err error) {
	if err != nil && c.Err() == nil && c.Val() == nil {
		c.SetErr(err)
	}
}

type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// headWords is how many words of a command come before the keys: EVALSHA or EVAL, the hash
// or source, and how many keys. The first two are set when the command is sent.
const headWords = 3

// bySHA makes the command that runs the script by its hash, in the place of one that is
// over. The command owns words from now on.
func (s *Script) bySHA(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	words[0], words[1] = "evalsha", s.sha
	return newCmd(ctx, at, words)
}

// bySource makes the command that sends the script along; see bySHA.
func (s *Script) bySource(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	words[0], words[1] = "eval", s.source
	return newCmd(ctx, at, words)
}

// newCmd shows a cluster client where the first key is. With a step count the client does not
// ask the server for its table of commands either, which is long and which a user may not be
// allowed to see.
func newCmd(ctx context.Context, at *redis.Cmd, words []any) noRetry {
	*at = *redis.NewCmd(ctx, words...)
	at.SetFirstKeyPos(headWords)
	at.SetStepCount(1)
	return noRetry{at}
}

// run sends the script once. A server that does not know it (first use, restart, SCRIPT
// FLUSH) has not run it, and is sent it in full.
func (s *Script) run(ctx context.Context, on processor, words []any) (any, error) {
	cmd := s.bySHA(ctx, new(redis.Cmd), words)
	err := on.Process(ctx, cmd)
	if isNoScript(err) {
		cmd = s.bySource(ctx, new(redis.Cmd), words) // the server is through with the first
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		reloadTopology(on, err)
		return nil, classify(err)
	}
	return cmd.Val(), nil
}

func isNoScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// size returns about how many bytes a command of these words has.
func size(words []any) int {
	n := 64
	for _, w := range words {
		switch w := w.(type) {
		case string:
			n += len(w)
		case *string:
			n += len(*w)
		}
		n += 8
	}
	return n
}

// plain returns the words with values in the place of pointers, for a client of a type of
// the user's, which may look at them.
func plain(words []any) []any {
	p := make([]any, len(words), len(words)+4)
	for i, w := range words {
		switch w := w.(type) {
		case *string:
			p[i] = *w
		case *int64:
			p[i] = *w
		default:
			p[i] = w
		}
	}
	return p
}
