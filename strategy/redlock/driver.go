package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/go-redsync/redsync/v4"
)

const (
	renewAtOnce = 32 // claims renewed at the same time
	laterBudget = 5 * time.Second
	laterPause  = 100 * time.Millisecond
	closeBudget = 3 * time.Second
)

// driver implements [locker.Driver] on the nodes.
type driver struct {
	nodes  []*node
	rs     *redsync.Redsync
	quorum int

	perNode time.Duration // 0: by the TTL
	log     *slog.Logger

	mu     sync.Mutex
	holds  map[string]*hold // by claim id, from the attempt to the end of its release
	closed bool
	work   sync.WaitGroup // what background started
	base   context.Context
	stop   context.CancelFunc
}

var _ interface {
	locker.Driver
	locker.Configurer
	locker.Notifier
	locker.Branded
	locker.Sharder
} = (*driver)(nil)

// Name implements [locker.Driver].
func (*driver) Name() string { return "redlock" }

// Brand implements [locker.Branded]: acquire.lua knows it.
func (*driver) Brand() int { return 8 }

// Shard implements [locker.Sharder]. Claims are not renewed in batches: a node
// that is slow for one must not delay another's.
func (*driver) Shard(string) string { return "" }

// Configure implements [locker.Configurer].
func (d *driver) Configure(cfg locker.DriverConfig) error {
	d.log = cfg.Logger
	d.base, d.stop = context.WithCancel(context.Background())
	for _, o := range cfg.Options {
		t, ok := o.(nodeTimeout)
		switch {
		case !ok:
			return fmt.Errorf("locker: %w: redlock knows no option %T", locker.ErrInvalid, o)
		case time.Duration(t) < time.Millisecond:
			return fmt.Errorf("locker: %w: WithNodeTimeout(%v): at least 1ms", locker.ErrInvalid, time.Duration(t))
		}
		d.perNode = time.Duration(t)
	}
	return nil
}

func (d *driver) nodeTimeout(ttl time.Duration) time.Duration {
	if d.perNode > 0 {
		return d.perNode
	}
	return min(max(ttl/10, 50*time.Millisecond), time.Second, ttl/4)
}

// skip says why not to bother n. With too few nodes up all are asked: they may be
// back.
func (d *driver) skip(n *node) error {
	err := n.usable()
	if err == nil {
		return nil
	}
	up := 0
	for _, n := range d.nodes {
		if !n.isDown() {
			up++
		}
	}
	if up < d.quorum {
		return nil
	}
	return err
}

// background runs f beside the callers. Close ends its context and waits for it;
// what an Unlock after Close starts runs by itself.
func (d *driver) background(f func(ctx context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		go f(context.Background())
		return
	}
	d.work.Go(func() { f(d.base) })
}

// mutex is redsync's view of a claim. Each operation has one of its own: they are
// not safe for concurrent use.
func (d *driver) mutex(c locker.Claim) *redsync.Mutex {
	return d.rs.NewMutex(c.Key,
		redsync.WithExpiry(c.TTL),
		redsync.WithGenValueFunc(func() (string, error) { return c.ID, nil }),
		redsync.WithValue(c.ID),
		redsync.WithTries(1),
		redsync.WithFailFast(true),    // a majority is enough; the rest goes on
		redsync.WithTimeoutFactor(1),  // nodes have their own timeouts
		redsync.WithDriftFactor(0.01), // the Locker's, too
	)
}

func (d *driver) holdOf(c locker.Claim) *hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.holds[c.ID]
	if h == nil {
		h = newHold(len(d.nodes))
		for i := range h.nodes {
			h.nodes[i].touched = true // for all we know
		}
		d.holds[c.ID] = h
	}
	return h
}

func (d *driver) forget(c locker.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.holds, c.ID)
}

// Acquire implements [locker.Driver]: one round to all nodes, and with fencing a
// second one.
func (d *driver) Acquire(ctx context.Context, req locker.Request) (locker.Answer, error) {
	h := newHold(len(d.nodes))
	d.mu.Lock()
	d.holds[req.ID] = h
	d.mu.Unlock()

	m := d.mutex(req.Claim)
	first := d.newOp(ctx, opAcquire, h, req)
	err := m.TryLockContext(first.in(ctx))
	if err == nil {
		err = d.checkDistinct()
	}
	if err == nil {
		var token int64
		if token, err = d.confirm(ctx, m, h, req, first); err == nil {
			return locker.Answer{Granted: true, Token: token}, nil
		}
	}
	d.undo(ctx, h, req.Claim, first)
	return d.refusal(first, err)
}

// confirm makes the greatest proposal of the first round the token.
func (d *driver) confirm(ctx context.Context, m *redsync.Mutex, h *hold, req locker.Request, first *op) (int64, error) {
	if !req.Fencing {
		return 0, nil
	}
	second := d.newOp(ctx, opConfirm, h, req)
	for _, a := range first.snapshot() {
		if a.state == yes {
			second.token = max(second.token, a.token)
		}
	}
	ok, err := m.ExtendContext(second.in(ctx))
	if !ok && err == nil {
		err = errors.New("the token was not confirmed by a quorum")
	}
	return second.token, err
}

// refusal says why an attempt failed.
func (d *driver) refusal(o *op, cause error) (locker.Answer, error) {
	if err := d.checkDistinct(); err != nil {
		return locker.Answer{}, err
	}
	var granted, taken, silent, permanent int
	var lefts []time.Duration
	var conflict error
	for _, a := range o.snapshot() {
		var refined *locker.StoreError
		switch {
		case a.state == yes:
			granted++
		case a.state == no:
			taken++
			if a.silent {
				silent++
			}
			if a.left >= 0 {
				lefts = append(lefts, a.left)
			}
		case errors.Is(a.err, locker.ErrConflict):
			conflict = a.err
		case errors.As(a.err, &refined) && refined.Permanent:
			permanent++
		}
	}
	blocking := len(d.nodes) - d.quorum + 1 // as many deny a quorum
	switch {
	case conflict != nil:
		return locker.Answer{}, conflict
	case permanent >= blocking:
		return locker.Answer{}, &locker.StoreError{Err: cause, Permanent: true}
	case taken == 0 || granted+taken < d.quorum && taken < blocking:
		// Not enough answers, or they came too late.
		return locker.Answer{}, &locker.StoreError{Err: fmt.Errorf("no quorum: %d of %d nodes granted, %d are needed: %w", granted, len(d.nodes), d.quorum, cause), NotApplied: true}
	}
	a := locker.Answer{Left: -1, Silent: true}
	if taken >= blocking {
		// A holder. The lock is free when enough of its keys are gone.
		a.Silent = silent > 0
		slices.Sort(lefts)
		if missing := d.quorum - granted; missing <= len(lefts) {
			a.Left = lefts[missing-1]
		}
	} // Else a split vote: nobody will give notice, try again after a random while.
	return a, nil
}

// undo cleans up after an attempt: where it was granted before this returns, so
// that the next attempt does not meet our own keys, elsewhere in the background.
func (d *driver) undo(ctx context.Context, h *hold, c locker.Claim, o *op) {
	h.close()
	var granted, all sync.WaitGroup
	for i, a := range o.snapshot() {
		all.Add(1)
		if a.state == yes {
			granted.Add(1)
		}
		d.background(func(ctx context.Context) {
			defer all.Done()
			d.releaseOn(ctx, h, i, c)
			if a.state == yes {
				granted.Done()
			}
		})
	}
	done := make(chan struct{})
	d.background(func(context.Context) {
		granted.Wait()
		close(done)
		all.Wait()
		d.forget(c)
	})
	timer := time.NewTimer(d.nodeTimeout(c.TTL))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}
