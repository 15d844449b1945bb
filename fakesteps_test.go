package locker

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

type op string

const (
	opAcquire  op = "acquire"
	opRenew    op = "renew"
	opRelease  op = "release"
	opSetHolds op = "set holds"
	opWatch    op = "watch"
	opPermits  op = "permits"
)

// command is something the driver was asked to do.
type command struct {
	op op
	driver.Request
	holds   int           // of SetHolds
	call    int           // the claims renewed by one call of Renew share it
	at      time.Duration // since the fake was made
	timeout time.Duration // until the context's deadline; 0 without
	end     time.Duration // when it returned; -1: not yet
	answer  driver.Answer // of Acquire

	f     *fake
	ctx   context.Context
	apply func() error // carries it out
}

// A step decides what becomes of a command.
type step func(*command) error

var (
	errRefused = &driver.StoreError{Err: errors.New("connection refused"), NotApplied: true}
	errReset   = errors.New("connection reset") // applied or not
	errNoPerm  = &driver.StoreError{Err: errors.New("NOPERM no permissions"), Permanent: true, NotApplied: true}
)

func obey(c *command) error { return c.apply() }

// hang never reaches the store.
func hang(c *command) error {
	<-c.ctx.Done()
	return c.ctx.Err()
}

// loseReply is carried out, and nobody is told.
func loseReply(c *command) error {
	_ = c.apply()
	return hang(c)
}

// fail does not reach the store.
func fail(err error) step { return func(*command) error { return err } }

// failAfter is carried out, and fails nevertheless.
func failAfter(err error) step {
	return func(c *command) error {
		_ = c.apply()
		return err
	}
}

// delay reaches the store, by way of s, after d.
func delay(d time.Duration, s step) step {
	return func(c *command) error {
		if !bound.Sleep(c.ctx, nil, d) {
			return c.ctx.Err()
		}
		return s(c)
	}
}

// replyAfter is carried out at once and answered d later.
func replyAfter(d time.Duration) step {
	return func(c *command) error {
		err := c.apply()
		if !bound.Sleep(c.ctx, nil, d) {
			return c.ctx.Err()
		}
		return err
	}
}

// applyLate is carried out after d, whether or not the sender has left by then.
func applyLate(d time.Duration) step {
	return func(c *command) error {
		time.AfterFunc(d, func() { _ = c.apply() })
		return hang(c)
	}
}

// deaf hangs, and returns only d after its context is done.
func deaf(d time.Duration) step {
	return func(c *command) error {
		<-c.ctx.Done()
		bound.Sleep(context.Background(), nil, d)
		return c.ctx.Err()
	}
}

// busy answers an Acquire that somebody else holds the key.
func busy(left time.Duration, silent bool) step {
	return func(c *command) error {
		c.f.t.Mu.Lock()
		defer c.f.t.Mu.Unlock()
		c.answer = driver.Answer{Remaining: left, NoWakeUp: silent}
		return nil
	}
}

const unknownLeft = -time.Millisecond

// next scripts the next commands of kind o, one step each.
func (f *fake) next(o op, steps ...step) {
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	f.script[o] = append(f.script[o], steps...)
}

// from now on all commands of kind o that next does not script take s.
func (f *fake) from(o op, s step) {
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	f.rest[o] = s
}

// do notes c and has its step decide.
func (f *fake) do(ctx context.Context, c *command, apply func() error) error {
	f.look()
	c.f, c.ctx, c.at, c.end = f, ctx, time.Since(f.start), -1
	if d, ok := ctx.Deadline(); ok {
		c.timeout = time.Until(d)
	}
	c.apply = func() error {
		f.t.Mu.Lock()
		defer f.t.Mu.Unlock()
		return apply()
	}
	f.t.Mu.Lock()
	f.log = append(f.log, c)
	f.running[c.op]++
	f.most[c.op] = max(f.most[c.op], f.running[c.op])
	s := f.rest[c.op]
	if steps := f.script[c.op]; len(steps) > 0 {
		s, f.script[c.op] = steps[0], steps[1:]
	}
	f.t.Mu.Unlock()
	if s == nil {
		s = obey
	}
	err := s(c)
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	f.running[c.op]--
	c.end = time.Since(f.start)
	return err
}

// sent returns the commands of kind o so far.
func (f *fake) sent(o op) []command {
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	var cs []command
	for _, c := range f.log {
		if c.op == o {
			cs = append(cs, *c)
		}
	}
	return cs
}

// atOnce is how many commands of kind o ran at the same time, at most.
func (f *fake) atOnce(o op) int {
	f.t.Mu.Lock()
	defer f.t.Mu.Unlock()
	return f.most[o]
}
