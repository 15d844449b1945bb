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
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/idle"
)

const (
	closeSoon   = 250 * time.Millisecond // Close lets clean-ups end by themselves
	closeBudget = 50 * time.Millisecond  // and then waits for what it has ended
)

// quorumDriver implements [driver.Driver] on the nodes.
type quorumDriver struct {
	nodes  []*node
	quorum int

	perNode     time.Duration // 0: by the TTL
	log         *slog.Logger
	nodeChanged func(name string, trouble error)
	newID       func() string // nil: a split vote is a refusal
	attempts    chan struct{} // a value for each attempt that is under way
	holds       holds
	ids         identities

	// The work that runs beside the callers. Lock order: hold.mu or node.mu before life.
	life    sync.Mutex
	closed  bool
	running idle.Count      // Close waits for its end
	base    context.Context // of what background started
	stop    context.CancelFunc
}

var _ interface {
	driver.Driver
	driver.Configurer
	driver.Notifier
	driver.Sharder
	driver.NodeCounter
	driver.Signaller
	driver.Inspector
	driver.Asker
} = (*quorumDriver)(nil)

// Name implements [driver.Driver].
func (*quorumDriver) Name() string { return "redlock" }

// Shard implements [driver.Sharder]. Claims are not renewed in batches: a node
// that is slow for one must not delay another's.
func (*quorumDriver) Shard(string) string { return "" }

// Configure implements [driver.Configurer]. acquire.lua knows the version of our ids.
func (d *quorumDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.log, d.nodeChanged, d.newID = cfg.Logger, cfg.NodeChanged, cfg.NewID
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

// majority says whether so many nodes are one.
func (d *quorumDriver) majority(nodes int) bool { return nodes >= d.quorum }

// skip says why not to send something to n. With too few nodes up all are asked: they may
// be back. A node that is slower than the others is not asked to take more locks than it
// can keep up with.
func (d *quorumDriver) skip(n *node, kind opKind) error {
	if (kind == opAcquire || kind == opJoin) && d.lags(n) {
		return errLags
	}
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
	if !d.majority(up) {
		return nil
	}
	return err
}

// mostBehind is how many commands more than for the others may be on their way to a node.
const mostBehind = 16

// lags compares n with the others that are up, if they are a majority without it.
func (d *quorumDriver) lags(n *node) bool {
	mine := n.underWay.Load()
	if mine <= mostBehind {
		return false
	}
	others := make([]int32, 0, 8)
	for _, other := range d.nodes {
		if other != n && !other.isDown() {
			others = append(others, other.underWay.Load())
		}
	}
	if !d.majority(len(others)) {
		return false
	}
	slices.Sort(others)
	return mine > mostBehind+others[d.quorum-1]
}

// background runs f beside the callers, until Close has ended what is under way. After
// that it does not run: an Unlock then makes one round and no more.
func (d *quorumDriver) background(f func(ctx context.Context)) (runs bool) {
	if !d.enter() {
		return false
	}
	go func() {
		defer d.leave()
		f(d.base)
	}()
	return true
}

// enter counts what begins, so that Close waits for it; leave ends that. It reports false after
// Close, and counts nothing.
func (d *quorumDriver) enter() bool {
	d.life.Lock()
	defer d.life.Unlock()
	if !d.closed {
		d.running.Add(1)
	}
	return !d.closed
}

func (d *quorumDriver) leave() {
	d.life.Lock()
	defer d.life.Unlock()
	d.running.Add(-1)
}

func (d *quorumDriver) isClosed() bool {
	d.life.Lock()
	defer d.life.Unlock()
	return d.closed
}

// await waits until nothing runs, or for so long, and lets nothing begin after that.
func (d *quorumDriver) await(most time.Duration) {
	d.life.Lock()
	done := d.running.Done()
	d.life.Unlock()
	bound.Sleep(context.Background(), done, most)
	d.life.Lock()
	defer d.life.Unlock()
	d.closed = true
}

// Close implements [driver.Driver].
func (d *quorumDriver) Close() error {
	d.await(closeSoon)
	d.stop()
	err := d.closeNodes()
	d.await(closeBudget)
	return err
}

func (d *quorumDriver) closeNodes() error {
	errs := make([]error, len(d.nodes))
	var all sync.WaitGroup
	for i, n := range d.nodes {
		all.Go(func() {
			n.channels.Close()
			errs[i] = n.Driver.Close()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
