package locker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

const (
	repeatAfter   = time.Second // before a release that found nothing is repeated
	choresAtOnce  = 64
	choreLate     = 300 * time.Millisecond // without an answer, before others are begun beside it
	chorePauseMax = time.Second
)

// chore is a command that goes on in the background: its caller has left, or the
// outcome of another is unknown.
type chore struct {
	id    string                          // of two that wait with one id, one is done
	run   func(ctx context.Context) error // nil: done; errRepeat: once more, later
	due   time.Duration
	until time.Duration   // the store has forgotten the claim by then
	fails func(err error) // told when it is given up
	err   error           // of the last try, if any
}

var errRepeat = errors.New("to be repeated")

// chores are those of one place that fails as a whole: a shard of the driver's. They
// share one back-off, so that a store in trouble is asked by one command after another,
// however many calls failed; one whose answer does not come holds the others up for no
// longer than choreLate. A goroutine sees to them while there are some.
type chores struct {
	waiting  map[string]*chore
	underWay int
	width    int           // how many are begun at a time: one after a failure, one more after each success
	failed   bool          // one has, since the last pause
	wake     chan struct{} // holds one
}

// add needs background.mu.
func (cs *chores) add(ch *chore) {
	if cs.waiting[ch.id] == nil {
		cs.waiting[ch.id] = ch
	}
}

// background is the chores of a Locker.
type background struct {
	mu     sync.Mutex
	shards map[string]*chores
	work   workCount // the goroutines
}

// later has ch done in the background.
func (e *Client) later(key string, ch *chore) {
	shard := ""
	if e.sharder != nil {
		shard = e.sharder.Shard(key)
	}
	if !e.background.add(e, shard, ch) {
		ch.fails(ErrClosed) // Close has not waited for it
	}
}

// add reports false once Close does not wait any more.
func (b *background) add(e *Client, shard string, ch *chore) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.base.Err() != nil {
		return false
	}
	cs := b.shards[shard]
	if cs == nil {
		cs = &chores{waiting: make(map[string]*chore), width: 1, wake: make(chan struct{}, 1)}
		b.shards[shard] = cs
		b.work.add(1)
		go e.doChores(shard, cs)
	}
	cs.add(ch)
	cs.wakeUp()
	return true
}

func (b *background) exit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work.add(-1)
}

// done returns a channel that is closed when no goroutine is left.
func (b *background) done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.work.done()
}

func (cs *chores) wakeUp() {
	select {
	case cs.wake <- struct{}{}:
	default:
	}
}

// take takes some chores that are due, and all that are over. Without one it tells
// how long it is until the first; without any, the shard is forgotten.
func (e *Client) take(shard string, cs *chores) (batch []*chore, wait time.Duration, over bool) {
	e.background.mu.Lock()
	defer e.background.mu.Unlock()
	now, wait, n := e.sched.Now(), never, max(min(cs.width, choresAtOnce-cs.underWay), 1)
	for id, ch := range cs.waiting {
		if now >= ch.until || len(batch) < n && (ch.due <= now || e.closing.Load()) {
			batch = append(batch, ch)
			delete(cs.waiting, id)
			continue
		}
		wait = min(wait, ch.due-now)
	}
	cs.underWay += len(batch)
	if over = cs.underWay+len(cs.waiting) == 0; over {
		delete(e.background.shards, shard)
	}
	return batch, wait, over
}

func (e *Client) doChores(shard string, cs *chores) {
	defer e.background.exit()
	var pause backoff
	for {
		batch, wait, over := e.take(shard, cs)
		switch {
		case len(batch) > 0:
			if e.doBatch(cs, batch) {
				pause = backoff{}
			} else {
				bound.Sleep(e.base, nil, pause.next(outagePauseMin, chorePauseMax))
			}
			continue
		case over:
			return
		}
		timer, closed := time.NewTimer(wait), e.closed
		if wait == never {
			closed = nil // none waits: those under way wake it
		}
		select {
		case <-timer.C:
		case <-cs.wake:
		case <-closed:
		}
		timer.Stop()
	}
}

// doBatch does not wait for chores that are late. It reports whether none has failed, of
// this batch or of those that were late before.
func (e *Client) doBatch(cs *chores, batch []*chore) (well bool) {
	ended := make(chan struct{}, len(batch))
	for _, ch := range batch {
		go func() {
			e.done(cs, e.do(cs, ch))
			ended <- struct{}{}
		}()
	}
	late := time.NewTimer(choreLate)
	defer late.Stop()
	for range batch {
		select {
		case <-ended:
			continue
		case <-late.C:
		}
		break
	}
	e.background.mu.Lock()
	defer e.background.mu.Unlock()
	well, cs.failed = !cs.failed, false
	return well
}

// do does a chore once, unless it is over. It reports false if the store is in trouble.
func (e *Client) do(cs *chores, ch *chore) bool {
	if e.sched.Now() < ch.until {
		ctx, cancel := context.WithTimeout(e.base, releaseTimeout)
		defer cancel()
		ch.err = e.runChore(ctx, ch)
		if ch.err == nil {
			return true
		}
	}
	repeat := errors.Is(ch.err, errRepeat)
	switch {
	case repeat && e.sched.Now() < ch.until:
		ch.due = e.sched.Now() + repeatAfter
	case repeat:
		return true
	case driver.IsPermanent(ch.err) || e.sched.Now() >= ch.until || e.base.Err() != nil:
		ch.fails(cmp.Or(withoutContextErrors(ch.err), errNoAnswer))
		return false
	}
	e.background.mu.Lock()
	defer e.background.mu.Unlock()
	cs.add(ch)
	return repeat
}

// runChore makes an error of a panic of the driver's, as for a renewal: nobody is there who
// could recover it.
func (e *Client) runChore(ctx context.Context, ch *chore) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.panicked("releasing in the background", v)
		}
	}()
	return ch.run(ctx)
}

// done notes that a chore is no longer under way. If it is to be done again, it waits by now.
func (e *Client) done(cs *chores, well bool) {
	e.background.mu.Lock()
	defer e.background.mu.Unlock()
	cs.underWay--
	if well {
		cs.width = min(cs.width+1, choresAtOnce)
	} else {
		cs.width, cs.failed = 1, true
	}
	cs.wakeUp()
}

// cleanUp frees what an attempt sent at sent may have got, definite if it did. A
// command that hung in a broken connection may reach the store after its clean-up
// on another, so a release that found nothing is repeated once.
func (e *Client) cleanUp(cl driver.Claim, sent time.Duration, definite bool) {
	e.later(cl.Key, &chore{
		id:    "clean up " + cl.ID,
		until: sent + cl.TTL + commandTimeout,
		run: func(ctx context.Context) error {
			err := e.driver.Release(ctx, cl)
			if isLost(err) && !definite {
				definite = true
				return errRepeat
			}
			if isLost(err) {
				return nil
			}
			return err
		},
		fails: func(err error) {
			e.log.Warn("clean-up after an attempt without an answer failed; the TTL frees the key", "strategy", e.name, "key", cl.Key, "err", err)
		},
	})
}

// freeLater goes on with a release that its Unlock left behind.
func (e *Client) freeLater(ctx context.Context, c *claim) {
	end := func(err error) {
		kind, outcome := c.releaseEnd(err)
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.released(ctx, kind, outcome)
	}
	e.later(c.Key, &chore{
		id:    "free " + c.ID,
		until: max(c.deadline, e.sched.Now()) + time.Second,
		run: func(rctx context.Context) error {
			err := c.free(rctx)
			if !isSettled(err) {
				return err
			}
			end(err)
			return nil
		},
		fails: end,
	})
}

// correctHolds puts right the hold count of a claim, which a command without an
// answer may have changed.
func (e *Client) correctHolds(c *claim) {
	e.later(c.Key, &chore{
		id:    "count " + c.ID,
		until: e.sched.Now() + max(c.TTL, minOutage),
		run: func(ctx context.Context) error {
			if err := c.syncHolds(ctx); !isSettled(err) {
				return err
			}
			return nil
		},
		fails: func(error) {}, // the next count that is sent is right again
	})
}
