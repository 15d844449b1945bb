package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Blocking is a dedicated client for commands that block, so that they never take a
// connection that other commands need.
type Blocking struct {
	client  redis.UniversalClient
	slice   time.Duration // for which a command blocks
	longest time.Duration // for which its answer is awaited
}

// blockingPool is the most connections that a Blocking opens to a node.
const blockingPool = 32

// NewBlocking makes the client; it returns nil if the user's cannot be copied. slice is how
// long one command blocks.
func (c *Conn) NewBlocking(slice time.Duration) *Blocking {
	client := c.dedicated(blockingPool, slice)
	if client == nil {
		return nil
	}
	return &Blocking{client: client, slice: slice, longest: slice + c.answerTimeout()}
}

// mostPopped is how many elements Pop takes at once.
const mostPopped = 256

// Pop waits for the next element of list and takes it, and with many others that are there.
// It fails with redis.Nil after a slice. It does not end with ctx: to end a BLPOP from here
// would lose an element that is pushed in that moment.
func (b *Blocking) Pop(ctx context.Context, list string, many bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.longest)
	defer cancel()
	seconds := strconv.FormatFloat(b.slice.Seconds(), 'f', -1, 64)
	first, more := noRetry{redis.NewCmd(ctx, "blpop", list, seconds)}, redis.NewCmd(ctx, "lpop", list, mostPopped)
	for _, cmd := range []*redis.Cmd{first.Cmd, more} { // as newCmd does
		cmd.SetFirstKeyPos(1)
		cmd.SetStepCount(1)
	}
	var err error
	if many {
		// One round trip for both. (A server before 6.2 refuses the second.)
		pipe := b.client.Pipeline()
		_, _ = pipe.Process(ctx, first), pipe.Process(ctx, more)
		_, ended := pipe.Exec(ctx)
		first.unreached(ended)
		err = first.Err()
	} else {
		err = b.client.Process(ctx, first)
	}
	if err != nil {
		reloadTopology(b.client, err)
		if !errors.Is(err, redis.Nil) {
			err = classify(err)
		}
		return nil, err
	}
	elements, err := first.StringSlice()
	if err != nil || len(elements) != 2 {
		return nil, &Error{Err: fmt.Errorf("unexpected reply %v to BLPOP", first.Val()), Permanent: true}
	}
	rest, _ := more.StringSlice()
	return append(elements[1:], rest...), nil
}

// Push pushes an empty element, which ends a Pop of list.
func (b *Blocking) Push(ctx context.Context, list string, keep time.Duration) error {
	_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.RPush(ctx, list, "")
		p.PExpire(ctx, list, keep)
		return nil
	})
	return err
}

// Close closes the connections.
func (b *Blocking) Close() { _ = b.client.Close() }
