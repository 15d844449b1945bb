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
	"github.com/distlock/locker/internal/redisdriver"
)

const (
	closeSoon   = 500 * time.Millisecond // Close lets clean-ups end by themselves
	closeBudget = 400 * time.Millisecond // and then waits for what it has ended
)

// quorumDriver implements [driver.Driver] on the nodes.
type quorumDriver struct {
	nodes  []*node
	quorum int

	perNode     time.Duration // 0: by the TTL
	log         *slog.Logger
	nodeChanged func(name string, trouble error)
	holds       holds
	ids         identities

	// The work that runs beside the callers. Lock order: hold.mu or node.mu before life.
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
	driver.NodeCounter
} = (*quorumDriver)(nil)

// Name implements [driver.Driver].
func (*quorumDriver) Name() string { return "redlock" }

// Shard implements [driver.Sharder]. Claims are not renewed in batches: a node
// that is slow for one must not delay another's.
func (*quorumDriver) Shard(string) string { return "" }

// Configure implements [driver.Configurer]. acquire.lua knows the version of our ids.
func (d *quorumDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.log, d.nodeChanged = cfg.Logger, cfg.NodeChanged
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

// lags compares n with the node that is the last one a majority needs.
func (d *quorumDriver) lags(n *node) bool {
	mine := n.underWay.Load()
	if mine <= mostBehind {
		return false
	}
	all := make([]int32, 0, 8)
	for _, n := range d.nodes {
		all = append(all, n.underWay.Load())
	}
	slices.Sort(all)
	return mine > mostBehind+all[d.quorum-1]
}

// background runs f beside the callers. Close ends its context and waits for it.
// After Close it does not run: an Unlock then makes one round and no more.
func (d *quorumDriver) background(f func(ctx context.Context)) (runs bool) {
	d.life.Lock()
	defer d.life.Unlock()
	if !d.closed {
		d.work.Go(func() { f(d.base) })
	}
	return !d.closed
}

// enter has Close wait for what redsync runs beside the callers. If it reports true it is
// to be followed by work.Done.
func (d *quorumDriver) enter() bool {
	d.life.Lock()
	defer d.life.Unlock()
	if !d.closed {
		d.work.Add(1)
	}
	return !d.closed
}

// Close implements [driver.Driver].
func (d *quorumDriver) Close() error {
	d.life.Lock()
	d.closed = true
	d.life.Unlock()
	done := make(chan struct{})
	go func() {
		d.work.Wait()
		close(done)
	}()
	redisdriver.WaitFor(done, closeSoon)
	d.stop()
	err := d.closeNodes()
	redisdriver.WaitFor(done, closeBudget)
	return err
}

func (d *quorumDriver) closeNodes() error {
	var errs []error
	for _, n := range d.nodes {
		n.signals.Close()
		errs = append(errs, n.Driver.Close())
	}
	return errors.Join(errs...)
}
