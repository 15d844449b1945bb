package redisconn

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// waiters holds the commands whose callers wait for a result. Each caller watches its own
// context; the pipeline enforces deadlines, with one timer for all, and ends the wait of
// commands whose closing context has ended.
type waiters struct {
	commands []*Command
	timer    *time.Timer
	armed    time.Time       // when the timer fires, no later than any deadline; zero: never
	closing  context.Context // the closing context that calls expire; nil: none yet
}

// register adds c to the waiters; p.mu is held.
func (p *pipeline) register(ctx context.Context, c *Command) {
	_, c.closing, c.deadline = bound.Ends(ctx)
	w := &p.waiters
	c.waiter = len(w.commands)
	w.commands = append(w.commands, c)
	p.armTimer(c.deadline)
	if c.closing != w.closing && c.closing != nil {
		w.closing = c.closing
		context.AfterFunc(c.closing, p.expire)
	}
}

// complete takes c off the waiters and lets its caller return; p.mu is held.
func (p *pipeline) complete(c *Command) {
	w := &p.waiters
	last := len(w.commands) - 1
	w.commands[c.waiter] = w.commands[last]
	w.commands[c.waiter].waiter = c.waiter
	w.commands[last] = nil
	w.commands = w.commands[:last]
	c.done <- struct{}{}
}

// armTimer lets the timer fire no later than deadline; the zero time is never.
func (p *pipeline) armTimer(deadline time.Time) {
	w := &p.waiters
	switch {
	case deadline.IsZero() || !w.armed.IsZero() && !deadline.Before(w.armed):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(deadline), p.expire)
	default:
		w.timer.Reset(time.Until(deadline))
	}
	w.armed = deadline
}

// expire abandons the commands whose time is over.
func (p *pipeline) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.waiters.armed = time.Time{}
	for i := len(p.waiters.commands) - 1; i >= 0; i-- { // abandon puts the last one in the place of c
		c := p.waiters.commands[i]
		switch {
		case c.closing != nil && c.closing.Err() != nil:
			p.abandon(c, context.Canceled)
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			p.abandon(c, context.DeadlineExceeded)
		default:
			p.armTimer(c.deadline)
		}
	}
}

// abandon lets c's caller return without a result, unless there is one; p.mu is held.
func (p *pipeline) abandon(c *Command, why error) {
	switch c.state {
	case queued:
		p.queue[c.place-p.taken] = nil // to look for it would be quadratic where thousands return
		p.gaps++
		c.abandoned = notSent(why)
	case sent:
		c.abandoned = unanswered(why)
		c.resolved = make(chan struct{})
		c.expiry = time.Now().Add(p.resolveTimeout())
	default:
		return
	}
	c.state = abandoned
	p.complete(c)
}

// unanswered returns the error of an abandoned command.
func unanswered(why error) error { return fmt.Errorf("the store has not answered: %w", why) }

// await returns c's error when c has a result, or is abandoned because ctx ends.
func (p *pipeline) await(ctx context.Context, c *Command) error {
	caller, _, _ := bound.Ends(ctx)
	if ended := caller.Done(); ended == nil {
		<-c.done
	} else {
		select {
		case <-c.done:
		case <-ended:
			why := caller.Err() // before p.mu is locked: the context may be of a type of the user's
			p.mu.Lock()
			p.abandon(c, why)
			p.mu.Unlock()
			<-c.done
		}
	}
	if c.abandoned != nil {
		return c.abandoned
	}
	return c.err
}

// resolve gives the commands, which have a result, back to their callers.
func (p *pipeline) resolve(cmds []*Command) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cmds {
		if c.state == abandoned {
			close(c.resolved)
			continue
		}
		c.state = answered
		p.complete(c)
	}
}
