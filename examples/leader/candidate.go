package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/strategy"
)

const (
	key = "ledger/leader"
	ttl = time.Second // for how long no candidate leads after a crash
)

// candidate stands for a process.
type candidate struct {
	name   string
	ledger *ledger
	every  time.Duration
	say    func(format string, args ...any)
	locks  locker.Locker
	close  func()
	freeze chan chan bool // stops it until it gets true; it is dead if that is closed
}

func (c *candidate) connect(ctx context.Context, url string) (err error) {
	c.locks, c.close, err = strategy.OpenURL(ctx, url)
	return err
}

// stand has the candidate stand for election until ctx ends.
func (c *candidate) stand(ctx context.Context) error {
	return leader.Run(ctx, c.locks, key, c.lead,
		leader.WithLockOptions(locker.WithTTL(ttl)),
		leader.WithBackoff(c.every, time.Second),
		leader.WithObserver(func(e leader.Event) {
			switch {
			case errors.Is(e.Err, locker.ErrClosed): // crashed
			case e.Err != nil:
				c.say("%s: %s (%v)", c.name, e.Kind, e.Err)
			default:
				c.say("%s: %s, with token %d", c.name, e.Kind, e.Token)
			}
		}))
}

// lead does the work of a leader: it writes with the token.
func (c *candidate) lead(ctx context.Context, token int64) error {
	for ctx.Err() == nil {
		time.Sleep(c.every)  // the work
		if !c.pausePoint() { // after the look at ctx and before the write: the worst moment
			return errors.New("crashed")
		}
		if err := c.ledger.write(c.name, token); err != nil {
			c.say("%s: %v", c.name, err)
		}
	}
	return nil // the leadership is lost, or all of it is over
}

// pausePoint is where the show stops a candidate. It reports whether it lives.
func (c *candidate) pausePoint() bool {
	select {
	case wake := <-c.freeze:
		return <-wake
	default:
		return true
	}
}

// ledger is the resource that leaders write to. It cannot know who leads, but it can compare.
type ledger struct {
	writes chan write      // gets each write, taken or refused
	over   <-chan struct{} // closed when the program ends
	tokens *fence.Memory   // for a database it is package sqlfence
}

type write struct {
	who     string
	token   int64
	refused bool
}

// write takes what comes from the leader, and refuses what comes from one that was the
// leader.
func (l *ledger) write(who string, token int64) error {
	err := l.tokens.Admit(context.Background(), key, token)
	if err != nil {
		err = fmt.Errorf("the ledger refuses the write: %w", err)
	}
	select {
	case l.writes <- write{who, token, err != nil}:
	case <-l.over:
	}
	return err
}
