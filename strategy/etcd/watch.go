package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch is an etcd watch, which ends with the driver.
type watch struct {
	d    *etcdDriver
	life context.Context // the watch's
	stop context.CancelFunc
}

func (d *etcdDriver) newWatch() *watch {
	w := &watch{d: d}
	w.life, w.stop = context.WithCancel(d.base)
	return w
}

var errClosed = errors.New("the driver is closed")

// begin passes on what happens from a revision on, until each returns false, the watch is stopped, or etcd ends it: a compaction,
// no leader. end is the last call.
func (w *watch) begin(name string, revision int64, each func([]*clientv3.Event) bool, end func(), opts ...clientv3.OpOption) error {
	opts = append(opts, clientv3.WithRev(revision))
	if w.d.spawn(func(context.Context) {
		defer end()
		defer w.stop()
		for res := range w.d.watcher.Watch(clientv3.WithRequireLeader(w.life), name, opts...) {
			if res.Err() != nil || !each(res.Events) {
				return
			}
		}
	}) {
		return nil
	}
	w.stop()
	return storeError(errClosed, true)
}
