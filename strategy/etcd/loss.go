package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lossWatch implements driver.LossWatch: one watch for all keys with the Locker's prefix, of what is deleted there, by
// whomever. A lock costs it nothing, and each release of any process a message. A watch on each member
// would cost two messages and a goroutine for every lock instead.
//
// A store that replaces the one that is watched (an empty one, a snapshot of it) has fewer revisions, and etcd shows nothing of it
// before its revisions have reached the watch's. The first transaction of this driver there ends the watch: no claim is granted
// without a transaction.
type lossWatch struct {
	changed func(driver.Signal)
	stop    context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	seen   int64                   // the revision up to which the watch has seen the store, at least
	claims map[string]driver.Claim // by the member's name
}

// DetectLoss implements driver.LossDetector. The watch begins at the revision that was read. When it ends the Locker begins
// anew.
func (d *etcdDriver) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	res, err := d.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(d.under(), clientv3.WithPrefix(), clientv3.WithCountOnly())}, nil)
	if err != nil {
		return nil, err
	}
	deletions := d.newWatch()
	w := &lossWatch{changed: changed, stop: deletions.stop, done: make(chan struct{}), seen: res.Header.Revision, claims: make(map[string]driver.Claim)}
	err = deletions.begin(d.under(), res.Header.Revision+1, w.pass, func() { close(w.done) }, clientv3.WithPrefix(), clientv3.WithFilterPut())
	if err != nil {
		return nil, err
	}
	d.losses.Store(w)
	return w, nil
}

// position returns the revision up to which the watch has seen the store, at least; 0 if there is no watch.
func (w *lossWatch) position() int64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// under begins the names of the members of the Locker's keys.
func (d *etcdDriver) under() string { return root + strings.ReplaceAll(d.prefix, "\x00", "\x00\xff") }

func (w *lossWatch) pass(events []*clientv3.Event) bool {
	for _, e := range events {
		w.mu.Lock()
		w.seen = e.Kv.ModRevision
		c, ok := w.claims[string(e.Kv.Key)]
		w.mu.Unlock()
		if ok && e.Type == mvccpb.DELETE {
			w.changed(driver.Signal{Kind: driver.SignalBroken, Key: c.Key, Claim: c.ID})
		}
	}
	return true
}

// Watch implements driver.LossWatch.
func (w *lossWatch) Watch(_ context.Context, more, less []driver.Claim) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range less {
		delete(w.claims, member{c.Key, c.ID}.name())
	}
	for _, c := range more {
		w.claims[member{c.Key, c.ID}.name()] = c
	}
	return nil
}

// Done implements driver.LossWatch.
func (w *lossWatch) Done() <-chan struct{} { return w.done }

// Close implements driver.LossWatch.
func (w *lossWatch) Close() { w.stop() }

// Configure implements driver.Configurer.
func (d *etcdDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	if len(cfg.Options) > 0 {
		return driver.Settings{}, fmt.Errorf("%w: etcd has no option %T", driver.ErrInvalid, cfg.Options[0])
	}
	d.prefix, d.newID = cfg.Prefix, cfg.NewID
	return driver.Settings{}, nil
}
