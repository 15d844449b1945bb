package redlock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/go-redsync/redsync/v4"
)

const (
	renewAtOnce = 32 // claims renewed at the same time
	laterBudget = 5 * time.Second
	laterPause  = 100 * time.Millisecond
	closeSoon   = 500 * time.Millisecond // Close lets clean-ups end by themselves
	closeBudget = 400 * time.Millisecond // and then waits for what it has ended
)

// driver implements [driver.Driver] on the nodes.
type quorumDriver struct {
	nodes  []*node
	rs     *redsync.Redsync
	quorum int

	perNode    time.Duration // 0: by the TTL
	log        *slog.Logger
	holds      holds
	ids        identities
	raced      atomic.Int64 // when an attempt last met another, as UnixNano
	first      sync.Once
	acquainted chan struct{} // closed when all nodes have been asked who they are

	// The work that runs beside the callers. Lock order: node.mu before life.
	life   sync.Mutex
	closed bool
	work   sync.WaitGroup
	base   context.Context // of what background started
	stop   context.CancelFunc
}

var _ interface {
	driver.Driver
	driver.Configurer
	driver.Notifier
	driver.Sharder
} = (*quorumDriver)(nil)

// Name implements [driver.Driver].
func (*quorumDriver) Name() string { return "redlock" }

// Shard implements [driver.Sharder]. Claims are not renewed in batches: a node
// that is slow for one must not delay another's.
func (*quorumDriver) Shard(string) string { return "" }

// Configure implements [driver.Configurer]. acquire.lua knows the version of our ids.
func (d *quorumDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.log = cfg.Logger
	for _, o := range cfg.Options {
		t, ok := o.(nodeTimeout)
		switch {
		case !ok:
			return driver.Settings{}, fmt.Errorf("locker: %w: redlock knows no option %T", locker.ErrInvalid, o)
		case time.Duration(t) < time.Millisecond:
			return driver.Settings{}, fmt.Errorf("locker: %w: WithNodeTimeout(%v): at least 1ms", locker.ErrInvalid, time.Duration(t))
		}
		d.perNode = time.Duration(t)
	}
	d.base, d.stop = context.WithCancel(context.Background())
	return driver.Settings{IDVersion: 8}, nil
}

func (d *quorumDriver) nodeTimeout(ttl time.Duration) time.Duration {
	if d.perNode > 0 {
		return d.perNode
	}
	return min(ttl/2, time.Second)
}

// skip says why not to bother n. With too few nodes up all are asked: they may be
// back.
func (d *quorumDriver) skip(n *node) error {
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

// background runs f beside the callers. Close ends its context and waits for it.
// After Close it does not run: an Unlock then makes one round and no more.
func (d *quorumDriver) background(f func(ctx context.Context)) {
	d.life.Lock()
	defer d.life.Unlock()
	if !d.closed {
		d.work.Go(func() { f(d.base) })
	}
}

// enter has Close wait for what redsync runs beside the callers, until the
// function returned is called.
func (d *quorumDriver) enter() (leave func()) {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return func() {}
	}
	d.work.Add(1)
	return d.work.Done
}

// mutex is redsync's view of a claim. Each operation has one of its own: they are
// not safe for concurrent use.
func (d *quorumDriver) mutex(c driver.Claim) *redsync.Mutex {
	return d.rs.NewMutex(c.Key, append(mutexOptions[:len(mutexOptions):len(mutexOptions)],
		redsync.WithExpiry(c.TTL),
		redsync.WithGenValueFunc(func() (string, error) { return c.ID, nil }),
		redsync.WithValue(c.ID),
	)...)
}

var mutexOptions = []redsync.Option{
	redsync.WithTries(1),
	redsync.WithFailFast(true),    // a majority is enough; the rest goes on
	redsync.WithTimeoutFactor(1),  // nodes have their own timeouts
	redsync.WithDriftFactor(0.01), // the Locker's, too
}

// Acquire implements [driver.Driver]: one round to all nodes, and with fencing a
// second one.
func (d *quorumDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := d.acquaint(ctx); err != nil {
		return driver.Answer{}, err
	}
	h, sent := newHold(len(d.nodes), req.Tokens), time.Now()
	m := d.mutex(req.Claim)
	referee, before := -1, time.Duration(0)
	if req.Wait && d.isRace() {
		referee, before = d.referee(), 2*d.patience(req.TTL)
	}
	first := d.newOp(ctx, opAcquire, h, req, before)
	first.askAhead(ctx, referee)
	_, err := round(ctx, func() (bool, error) { return true, m.TryLockContext(first.in(ctx)) })
	if same := d.checkDistinct(); same != nil {
		d.undo(ctx, first)
		return driver.Answer{}, same
	}
	if err != nil {
		d.undo(ctx, first)
		return d.refusal(first)
	}
	token, err := d.confirm(ctx, m, first)
	if err != nil {
		d.undo(ctx, first)
		return driver.Answer{}, err
	}
	h.lasts(sent, req.TTL)
	d.holds.add(req.ID, h)
	return driver.Answer{Granted: true, Token: token, Tokens: req.Tokens}, nil
}

// confirm makes the greatest proposal of the first round the token, which takes a
// second round to write it down unless a majority has it already. That is the rule:
// nodes that took part in the last grant of a key make the same proposal.
func (d *quorumDriver) confirm(ctx context.Context, m *redsync.Mutex, first *op) (int64, error) {
	if !first.req.Fencing {
		return 0, nil
	}
	token, agreed := int64(0), 0
	for _, a := range first.snapshot() {
		switch {
		case a.state != yes:
		case a.token > token:
			token, agreed = a.token, 1
		case a.token == token:
			agreed++
		}
	}
	if agreed >= d.quorum {
		return token, nil
	}
	second := d.newOp(ctx, opConfirm, first.hold, first.req, 0)
	second.token = token
	if ok, err := round(ctx, func() (bool, error) { return m.ExtendContext(second.in(ctx)) }); !ok || err != nil {
		why := second.trouble("confirmed the token", "the claim is gone")
		why.NotApplied = true // it is undone
		return 0, why
	}
	return token, nil
}

// refusal says why the first round failed.
func (d *quorumDriver) refusal(o *op) (driver.Answer, error) {
	granted, taken, noWakeUp := 0, 0, false
	var remaining []time.Duration
	for _, a := range o.snapshot() {
		switch a.state {
		case yes:
			granted++
		case no:
			taken++
			noWakeUp = noWakeUp || a.noWakeUp
			if a.remaining > 0 {
				remaining = append(remaining, a.remaining)
			}
		}
	}
	if taken > 0 && granted > 0 {
		d.raced.Store(time.Now().UnixNano())
	}
	switch {
	case taken > len(d.nodes)-d.quorum:
		// A holder. The lock is free when enough of its keys are gone.
		a := driver.Answer{NoWakeUp: noWakeUp}
		slices.Sort(remaining)
		if missing := d.quorum - granted; missing <= len(remaining) {
			a.Remaining = remaining[missing-1]
		}
		return a, nil
	case taken > 0 && granted+taken >= d.quorum:
		// A split vote: a majority may give no notice, try again after a random while.
		return driver.Answer{NoWakeUp: true}, nil
	}
	// Not enough answers, or they came too late.
	why := o.trouble("granted the lock", "another holder has it")
	why.NotApplied = true // it is undone
	return driver.Answer{}, why
}

// raceLasts is how long after contenders met on the nodes one is asked ahead: a round
// trip more, but only one of those that a release wakes gets any votes.
const raceLasts = time.Second

func (d *quorumDriver) isRace() bool {
	return time.Since(time.Unix(0, d.raced.Load())) < raceLasts
}

// undo cleans up after an attempt: where it was granted before this returns, so
// that the next attempt does not meet our own keys, elsewhere in the background.
func (d *quorumDriver) undo(ctx context.Context, o *op) {
	o.hold.close()
	done := make(chan struct{}, len(d.nodes))
	waitFor := 0
	for i, a := range o.snapshot() {
		if !o.hold.left(i) {
			continue
		}
		if a.state == yes {
			waitFor++
		}
		d.background(func(ctx context.Context) {
			d.releaseOn(ctx, o.hold, i, o.req.Claim)
			if a.state == yes {
				done <- struct{}{}
			}
		})
	}
	timer := time.NewTimer(d.nodeTimeout(o.req.TTL))
	defer timer.Stop()
	for range waitFor {
		select {
		case <-done:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
