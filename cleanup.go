package locker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

const (
	repeatAfter   = time.Second // before a release that found nothing is repeated
	choresAtOnce  = 64
	chorePauseMax = time.Second
)

// chore is a command that goes on in the background: its caller has left, or the
// outcome of another is unknown.
type chore struct {
	run   func(ctx context.Context) error // nil: done; errRepeat: once more, later
	due   time.Duration
	until time.Duration   // the store has forgotten the claim by then
	fails func(err error) // told when it is given up
	err   error           // of the last try, if any
}

var errRepeat = errors.New("to be repeated")

// chores are those of one place that fails as a whole: a shard of the driver's. They
// share one back-off, so that a store in trouble is asked by one command at a time,
// however many calls failed. A goroutine does them while there are some.
type chores struct {
	list []*chore
	wake chan struct{} // holds one
}

// background is the chores of a Locker.
type background struct {
	mu     sync.Mutex
	shards map[string]*chores
	work   shard // counts the goroutines
}

// later has ch done in the background.
func (e *engine) later(key string, ch *chore) {
	place := ""
	if e.sharder != nil {
		place = e.sharder.Shard(key)
	}
	b := &e.background
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.base.Err() != nil {
		ch.fails(ErrClosed) // Close has not waited for it
		return
	}
	cs := b.shards[place]
	if cs == nil {
		cs = &chores{wake: make(chan struct{}, 1)}
		b.shards[place] = cs
		b.work.enter(true)
		go e.doChores(place, cs)
	}
	cs.list = append(cs.list, ch)
	select {
	case cs.wake <- struct{}{}:
	default:
	}
}

// take takes up to n chores that are due off the list. Without one it tells how long
// it is until the first; without any, the place is forgotten, and it reports false.
func (e *engine) take(place string, cs *chores, n int) (batch []*chore, wait time.Duration, ok bool) {
	b := &e.background
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(cs.list) == 0 {
		delete(b.shards, place)
		return nil, 0, false
	}
	now, wait := e.sched.Now(), never
	kept := cs.list[:0]
	for _, ch := range cs.list {
		over := now >= ch.until // to be given up without another try
		if over || len(batch) < n && (ch.due <= now || e.isClosed()) {
			batch = append(batch, ch)
			continue
		}
		wait = min(wait, ch.due-now)
		kept = append(kept, ch)
	}
	clear(cs.list[len(kept):])
	cs.list = kept
	return batch, wait, true
}

func (e *engine) doChores(place string, cs *chores) {
	defer e.background.work.exit()
	var pause backoff
	width := 1
	for {
		batch, wait, ok := e.take(place, cs, width)
		switch {
		case !ok:
			return
		case len(batch) == 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-cs.wake:
			case <-e.closed:
			}
			timer.Stop()
			continue
		}
		again, trouble := e.doBatch(batch)
		e.background.mu.Lock()
		cs.list = append(cs.list, again...)
		e.background.mu.Unlock()
		if !trouble {
			pause, width = backoff{}, min(2*width, choresAtOnce)
			continue
		}
		width = 1
		sleep(e.base, nil, pause.next(outagePauseMin, chorePauseMax))
	}
}

// doBatch does chores at the same time. It returns those to be done again, and whether
// the store is in trouble.
func (e *engine) doBatch(batch []*chore) (again []*chore, trouble bool) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, ch := range batch {
		all.Go(func() {
			if e.sched.Now() < ch.until {
				ctx, cancel := context.WithTimeout(e.base, releaseTimeout)
				defer cancel()
				if ch.err = ch.run(ctx); ch.err == nil {
					return
				}
			}
			now, repeat := e.sched.Now(), errors.Is(ch.err, errRepeat)
			mu.Lock()
			defer mu.Unlock()
			trouble = trouble || !repeat
			switch {
			case repeat && now < ch.until:
				ch.due = now + repeatAfter
			case repeat:
				return
			case driver.IsPermanent(ch.err) || now >= ch.until || e.base.Err() != nil:
				ch.fails(cmp.Or(withoutContextErrors(ch.err), errNoAnswer))
				return
			}
			again = append(again, ch)
		})
	}
	all.Wait()
	return again, trouble
}

// cleanUp frees what an attempt sent at sent may have got, definite if it did. A
// command that hung in a broken connection may reach the store after its clean-up
// on another, so a release that found nothing is repeated once.
func (e *engine) cleanUp(cl driver.Claim, sent time.Duration, definite bool) {
	e.later(cl.Key, &chore{
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
func (e *engine) freeLater(ctx context.Context, c *claim) {
	e.later(c.Key, &chore{
		until: max(c.lastsUntil(), e.sched.Now()) + time.Second,
		run: func(rctx context.Context) error {
			err := c.free(rctx)
			if isSettled(err) {
				c.settleRelease(ctx, err)
				return nil
			}
			return err
		},
		fails: func(err error) { c.settleRelease(ctx, err) },
	})
}

// correctHolds puts right the hold count of a claim, which a command without an
// answer may have changed.
func (e *engine) correctHolds(c *claim) {
	e.later(c.Key, &chore{
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
