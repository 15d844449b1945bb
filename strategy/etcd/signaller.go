package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// signalsPrefix begins the keys of Lockers that listen, which end with the Locker's UUID. No member has such a
// name: each has a NUL.
const signalsPrefix = root + "signals/"

// listenTTL is how long the key of a Locker lasts that listens no more, as its process has died. It is extended
// three times as often.
const listenTTL = 9 * time.Second

// signals implements driver.Listener. While a Locker listens its key is there, and the Locker
// watches it. A signal is put into the key on condition that the key is there: it is one command,
// leaves nothing behind where nobody listens, and a command that arrives late, after the key has ended, puts
// nothing. Values that replace one another are all shown by the watch. When the key or the watch ends
// (no leader, a compaction, a process that was paused) the Locker listens anew.
type signals struct {
	c    chan driver.Signal
	stop context.CancelFunc
}

// Listen implements driver.Signaller: two commands. The watch begins at the revision that put the key, and so misses
// nothing that is sent after Listen has returned.
func (d *etcdDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	l, err := d.leases.take(ctx, listenTTL)
	if err != nil {
		return nil, storeError(err, true)
	}
	name := signalsPrefix + locker
	res, err := d.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(name, "", clientv3.WithLease(l.id))}, nil)
	if err != nil {
		d.leases.spend(l) // and with it the key, if it was put
		return nil, err
	}
	w := d.newWatch()
	s := &signals{make(chan driver.Signal, driver.SignalBuffer), w.stop}
	err = w.begin(name, res.Header.Revision+1, s.pass, func() {
		close(s.c)
		d.leases.spendOthers(0, nil, l.id) // whatever is known of its end
	})
	if err != nil {
		d.leases.spend(l)
		return nil, err
	}
	d.spawn(func(context.Context) { d.listens(w.life, s, l) })
	return s, nil
}

// listens extends the lease of a Locker's key until ctx is done or the lease has ended.
func (d *etcdDriver) listens(ctx context.Context, s *signals, l *lease) {
	for bound.Sleep(ctx, nil, listenTTL/3) {
		ctx, cancel := context.WithTimeout(ctx, listenTTL/3)
		extended, err := d.leases.keepAlive(ctx, false, l)
		cancel()
		if err == nil && !extended[l] {
			s.stop()
		}
	}
}

// pass passes signals on. It reports false when the key was deleted.
func (s *signals) pass(events []*clientv3.Event) bool {
	for _, e := range events {
		if e.Type == mvccpb.DELETE {
			return false
		}
		if sig, ok := driver.ParseSignal(string(e.Kv.Value)); ok { // anybody may put anything
			select {
			case s.c <- sig:
			default: // signals may be lost
			}
		}
	}
	return true
}

// C implements driver.Listener.
func (s *signals) C() <-chan driver.Signal { return s.c }

// Close implements driver.Listener.
func (s *signals) Close() { s.stop() }

// Signal implements driver.Signaller: one transaction.
func (d *etcdDriver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %.80q is no claim's id", driver.ErrInvalid, s.Claim)
	}
	name := signalsPrefix + locker
	listens := clientv3.Compare(clientv3.CreateRevision(name), ">", 0)
	_, err := d.txn(ctx, []clientv3.Cmp{listens}, []clientv3.Op{clientv3.OpPut(name, s.String(), clientv3.WithIgnoreLease())}, nil)
	return err
}
