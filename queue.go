package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// queue is Lock: first come, first served, and only the head of the queue talks
// to the store.
func (c *call) queue(named bool) (*Lease, error) {
	e := c.e
	sh := e.shardOf(c.key)
	w := &waiter{owner: c.owner, limit: max(c.ttl, minOutage), wake: make(chan struct{}, 1)}
	sh.mu.Lock()
	ks := sh.at(c.key)
	ks.push(w)
	sh.mu.Unlock()
	defer e.leave(sh, ks, w)

	var poll, outage backoff
	for {
		turn := e.turn(sh, ks, w, named)
		switch {
		case e.isClosed():
			return nil, c.fail(ErrClosed, nil, "")
		case turn.failed != nil:
			return nil, c.unavailable(turn.failed, "")
		case turn.orphan != nil:
			return nil, c.lost(turn.orphan)
		case turn.mine != nil:
			l, err := c.reenter(turn.mine, false)
			if !errors.Is(err, errGone) {
				return l, err
			}
			// It is being released; its end wakes the head.
		}
		if !turn.attempt {
			look := time.Duration(0) // until woken
			if named && e.counter != nil {
				look = signalledPause // whether to join a hold; see turn
			}
			if err := c.park(sh, ks, w, nil, look); err != nil {
				return nil, err
			}
			continue
		}

		watch := turn.watch
		if watch != nil {
			select {
			case _, ok := <-watch.C(): // a signal from before the attempt
				if !ok {
					e.unwatch(sh, ks, watch)
					watch = nil
				}
			default:
			}
		}
		claim := e.newClaim(c.key, c.owner, c.ttl)
		a := c.attempt(claim, watch != nil)
		if turn.head {
			e.heard(sh, ks, a)
		}
		switch {
		case a.left && e.isClosed():
			return nil, c.fail(ErrClosed, nil, "")
		case a.left:
			return nil, c.gaveUp(sh, ks, turn.head)
		case a.err != nil && isPermanent(a.err):
			return nil, c.unavailable(a.err, "")
		case a.err != nil:
			if err := c.park(sh, ks, w, nil, outage.next(outagePauseMin, outagePauseMax)); err != nil {
				return nil, err
			}
			continue
		case a.Granted:
			l, err := c.grant(claim, a, named, w)
			switch {
			case err == nil || errors.Is(err, ErrClosed):
				return l, err
			case errors.Is(err, errMerge):
				continue
			}
			a.err = errLate // the store is too slow to be of use
			if turn.head {
				e.heard(sh, ks, a)
			}
			if err := c.park(sh, ks, w, nil, outage.next(outagePauseMin, outagePauseMax)); err != nil {
				return nil, err
			}
			continue
		}

		outage = backoff{}
		if !turn.head {
			// Somebody else's hold, not one to join. Look again in a while.
			if err := c.park(sh, ks, w, nil, signalledPause); err != nil {
				return nil, err
			}
			continue
		}
		if watch == nil && !a.Silent && e.subscribe(c.ctx, sh, ks) {
			continue // once more: the key may have been freed meanwhile
		}
		if err := c.park(sh, ks, w, watch, pauseFor(a.Answer, watch != nil, &poll)); err != nil {
			return nil, err
		}
	}
}

// pauseFor is how long to wait after a refusal for what no signal tells.
func pauseFor(a Answer, watched bool, poll *backoff) time.Duration {
	var d time.Duration
	if watched && !a.Silent {
		d = signalledPause - rand.N(signalledPause/5)
	} else {
		d = poll.next(pollMin, pollMax)
	}
	if a.Left >= 0 {
		// The holder may be dead: look when its lease is over, not all
		// waiters in the same instant.
		d = min(d, a.Left+time.Millisecond+rand.N(4*time.Millisecond))
	}
	return d
}

// turn is what a waiter is to do.
type turn struct {
	attempt bool   // make one
	head    bool   // as the head of the queue; else only to join a hold of the same owner
	watch   Watch  // the key's, if any
	mine    *claim // re-enter it
	orphan  *claim // fail: the owner has lost it
	failed  error  // the queue failed
}

func (e *engine) turn(sh *shard, ks *keyState, w *waiter, named bool) turn {
	sh.mu.Lock()
	if cur := ks.current; cur != nil {
		// The clock is looked at outside the lock; a loss takes it.
		sh.mu.Unlock()
		cur.checkClock()
		sh.mu.Lock()
	}
	defer sh.mu.Unlock()
	t := turn{failed: w.err}
	if named {
		t.orphan = ks.orphanOf(w.owner)
		if ks.current != nil && ks.current.Owner == w.owner {
			t.mine = ks.current
		}
	}
	if ks.current != nil {
		return t
	}
	if t.head = ks.head == w; t.head {
		t.attempt = true
		t.watch = ks.watch
		ks.sent = time.Now()
	} else if named && e.counter != nil && time.Since(w.asked) > signalledPause/2 {
		// The owner may hold the key from another process, and would wait for
		// itself behind those who wait for that hold to end.
		t.attempt = true
		w.asked = time.Now()
	}
	return t
}

// unwatch drops a watch that has ended by itself.
func (e *engine) unwatch(sh *shard, ks *keyState, w Watch) {
	sh.mu.Lock()
	if ks.watch == w {
		ks.watch = nil
	}
	sh.mu.Unlock()
	w.Close()
}

func (e *engine) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// heard notes how the head's attempt ended.
func (e *engine) heard(sh *shard, ks *keyState, a attempt) {
	if a.left {
		return // gaveUp looks at ks.sent
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ks.sent = time.Time{}
	if a.err != nil {
		ks.failed(time.Now(), a.err)
	} else {
		ks.answered()
		ks.known = true
	}
}

// subscribe makes the key's watch; it reports false when the waiter has to poll.
func (e *engine) subscribe(ctx context.Context, sh *shard, ks *keyState) bool {
	if e.notifier == nil {
		return false
	}
	sh.mu.Lock()
	early := time.Now().Before(ks.watchTry)
	sh.mu.Unlock()
	if early {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	watch, err := e.notifier.Watch(ctx, ks.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err != nil {
		ks.watchTry = time.Now().Add(signalledPause)
		if ctx.Err() == nil {
			e.log.Debug("no signals for a waiter, polling", "strategy", e.name, "err", err)
		}
		return false
	}
	ks.watch = watch
	return true
}

// park waits for d (0: without bound), a signal or a change in the queue. It
// fails when the caller does not want to wait any more.
func (c *call) park(sh *shard, ks *keyState, w *waiter, watch Watch, d time.Duration) error {
	var signal <-chan struct{}
	if watch != nil {
		signal = watch.C()
	}
	var timeout <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-w.wake:
	case <-signal:
	case <-timeout:
	case <-c.e.closed:
		return c.fail(ErrClosed, nil, "")
	case <-c.ctx.Done():
		return c.gaveUp(sh, ks, false)
	}
	return nil
}

// gaveUp is the error of a wait that the caller ended.
func (c *call) gaveUp(sh *shard, ks *keyState, inFlight bool) error {
	sh.mu.Lock()
	outage, why := !ks.outage.IsZero(), ks.outageErr
	if !outage && !ks.sent.IsZero() {
		// An attempt is unanswered: trouble, unless it is just that the wait
		// was over a moment after it was sent. A store that has answered
		// before gets the benefit of the doubt for longer.
		patience := answerSoon
		if ks.known {
			patience = answerLate
		}
		outage = time.Since(ks.sent) > patience
	}
	if inFlight {
		if outage && ks.outage.IsZero() {
			// The others in the queue need not find out for themselves.
			ks.outage, ks.outageErr = ks.sent, errNoAnswer
		}
		ks.sent = time.Time{}
	}
	sh.mu.Unlock()
	if outage {
		if why == nil {
			why = errNoAnswer
		}
		return c.unavailable(why, "")
	}
	why = c.ctxError()
	if why == nil {
		why = fmt.Errorf("not within %v", c.wait)
	}
	return c.fail(ErrNotAcquired, why, "")
}

// leave takes w off the queue, if it is still there, and passes the turn on.
func (e *engine) leave(sh *shard, ks *keyState, w *waiter) {
	sh.mu.Lock()
	ks.remove(w)
	unwatch := sh.settle(ks, false)
	sh.mu.Unlock()
	if unwatch != nil {
		unwatch.Close()
	}
}
