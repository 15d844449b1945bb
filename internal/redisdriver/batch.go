package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

const (
	// batchesAtOnce are on their way to a server at the same time: more than one, so
	// that a packet that is lost does not hold up everybody.
	batchesAtOnce = 2
	maxBatch      = 128 // commands
)

// batches sends the commands of many callers to one server in few round trips: one
// that comes while others are on their way waits for the next to be back, and goes
// with whatever has gathered. So a server that is busy is sent fewer and longer
// messages, not more and more connections. A command that comes alone goes alone.
//
// One of the callers whose commands a batch has leads it; a goroutine runs only while a
// batch is on its way.
type batches struct {
	to interface {
		processor
		Pipeline() redis.Pipeliner
	}

	mu    sync.Mutex
	busy  int // batches on their way
	queue []*batched
}

// batched is a command that waits, or is on its way with others.
type batched struct {
	ctx context.Context
	cmd redis.Cmder
	// turn receives true if the command's owner is to lead the next batch, false
	// when the answer is there. It holds one.
	turn chan bool
	led  bool // it was told to lead; guarded by batches.mu
}

// Process implements [processor]. If ctx ends first, the command may still be sent,
// unless the error says that it was not.
func (b *batches) Process(ctx context.Context, cmd redis.Cmder) error {
	b.mu.Lock()
	if b.busy < batchesAtOnce { // then nobody waits
		b.busy++
		b.mu.Unlock()
		defer b.next()
		return b.to.Process(ctx, cmd)
	}
	e := &batched{ctx: ctx, cmd: cmd, turn: make(chan bool, 1)}
	b.queue = append(b.queue, e)
	b.mu.Unlock()

	select {
	case lead := <-e.turn:
		if lead {
			return b.lead(e)
		}
		return cmd.Err()
	case <-ctx.Done():
		return b.abandon(e)
	}
}

// next ends a batch: the first that waits leads another.
func (b *batches) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		return
	}
	first := b.queue[0]
	b.queue = b.queue[1:]
	first.led = true
	first.turn <- true
}

// lead sends e and all that wait. It returns when e is answered or its ctx ends: the
// others may have more time.
func (b *batches) lead(e *batched) error {
	b.mu.Lock()
	n := min(len(b.queue), maxBatch-1)
	rest := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	b.mu.Unlock()
	if n == 0 {
		defer b.next()
		return b.to.Process(e.ctx, e.cmd)
	}
	go func() {
		defer b.next()
		b.send(append(rest, e))
	}()
	select {
	case <-e.turn:
		return e.cmd.Err()
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// send sends a batch, for as long as one of its commands has time, and tells each that
// it was answered.
func (b *batches) send(batch []*batched) {
	pipe := b.to.Pipeline()
	until, bounded := time.Time{}, true
	for _, e := range batch {
		_ = pipe.Process(e.ctx, e.cmd)
		t, ok := e.ctx.Deadline()
		bounded = bounded && ok
		if t.After(until) {
			until = t
		}
	}
	ctx, cancel := context.WithoutCancel(batch[0].ctx), func() {}
	if bounded {
		ctx, cancel = context.WithDeadline(ctx, until)
	}
	defer cancel()
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, e := range batch {
		e.turn <- false
	}
}

// abandon is the end of a command whose ctx ended.
func (b *batches) abandon(e *batched) error {
	b.mu.Lock()
	i := slices.Index(b.queue, e)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	led := e.led
	b.mu.Unlock()
	switch {
	case led:
		b.next()
		fallthrough
	case i >= 0:
		return &driver.StoreError{Err: fmt.Errorf("it was not sent: %w", e.ctx.Err()), NotApplied: true}
	}
	return e.ctx.Err()
}
