package etcd

import (
	"context"

	"github.com/distlock/locker/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// place is a driver.Watch: a member in line, and an etcd watch on the one before it, so that a
// release wakes one waiter. It has neither before the first attempt is refused under it. That
// attempt misses no release: the watch begins at the revision at which the member before was seen.
type place struct {
	d   *etcdDriver
	key string
	c   chan struct{}

	// Of etcdDriver.mu:
	id, owner string // of the member; "" is none
	before    *watch // on the member before; nil is none
	closed    bool
}

// watch is an etcd watch.
type watch struct{ stop context.CancelFunc }

// Watch implements driver.Notifier. It sends nothing.
func (d *etcdDriver) Watch(_ context.Context, key string) (driver.Watch, error) {
	p := &place{d: d, key: key, c: make(chan struct{}, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.places[key] = p
	return p, nil
}

// seat returns the place in which an attempt waits, nil if it does not, and the claim that it is for: that
// of an earlier attempt of the same owner which has a place already.
func (d *etcdDriver) seat(req driver.Request) (*place, string) {
	d.mu.Lock()
	p := d.places[req.Key]
	if !req.Wait || p == nil {
		d.mu.Unlock()
		return nil, req.ID
	}
	old := p.id
	if old != "" && p.owner == ownerOf(req) && d.leases.has(old, req.TTL) {
		d.mu.Unlock()
		return p, old
	}
	p.id = ""
	p.unwatch()
	d.mu.Unlock()
	d.giveUp(member{req.Key, old})
	return p, req.ID
}

// ownerOf is the name of the owner, "" if the caller gave none.
func ownerOf(req driver.Request) string {
	if req.Owner == req.ID {
		return ""
	}
	return req.Owner
}

// wait notes that the place is that of a member, and watches the one before it.
func (p *place) wait(ctx context.Context, id string, req driver.Request, revision int64) {
	d := p.d
	d.mu.Lock()
	if p.closed {
		d.mu.Unlock()
		d.giveUp(member{p.key, id})
		return
	}
	p.id, p.owner = id, ownerOf(req)
	watched := p.before != nil
	d.mu.Unlock()
	if watched {
		return
	}
	start, end := rangeOf(p.key)
	before := clientv3.OpGet(start, clientv3.WithRange(end), clientv3.WithMaxCreateRev(revision-1), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	res, err := d.txn(ctx, nil, []clientv3.Op{before}, nil)
	if err != nil {
		return // the next look watches
	}
	if last := kv(res.Responses[0]); last != nil {
		p.watch(string(last.Key), res.Header.Revision+1)
	} else {
		p.signal()
	}
}

// watch signals when the member named is deleted. When etcd ends the watch (a compaction, no leader), the
// Locker's next look begins another one.
func (p *place) watch(name string, revision int64) {
	ctx, stop := context.WithCancel(p.d.base)
	w := &watch{stop}
	p.d.mu.Lock()
	begins := !p.closed && p.before == nil
	if begins {
		p.before = w
	}
	p.d.mu.Unlock()
	if !begins || !p.d.spawn(func(context.Context) {
		gone := false
		for res := range p.d.client.Watch(clientv3.WithRequireLeader(ctx), name, clientv3.WithRev(revision), clientv3.WithFilterPut()) {
			if gone = len(res.Events) > 0; gone || res.Err() != nil {
				break
			}
		}
		p.ends(w, gone)
	}) {
		stop()
	}
}

// ends is for a watch that tells no more, as the member before is gone or etcd has ended it.
func (p *place) ends(w *watch, gone bool) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	w.stop()
	if p.before != w {
		return
	}
	if p.before = nil; gone {
		p.signal()
	}
}

// unwatch needs etcdDriver.mu.
func (p *place) unwatch() {
	if p.before != nil {
		p.before.stop()
		p.before = nil
	}
}

func (p *place) signal() {
	select {
	case p.c <- struct{}{}:
	default: // a signal is there already
	}
}

// granted notes that the member holds the key, and waits no more.
func (p *place) granted(id string) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.id == id {
		p.id = ""
	}
	p.unwatch()
}

// C implements driver.Watch.
func (p *place) C() <-chan struct{} { return p.c }

// Close implements driver.Watch. A member that has become the first wakes the next one when it is deleted.
func (p *place) Close() {
	d := p.d
	d.mu.Lock()
	if d.places[p.key] == p {
		delete(d.places, p.key)
	}
	id := p.id
	p.id, p.closed = "", true
	p.unwatch()
	d.mu.Unlock()
	d.giveUp(member{p.key, id})
}

// giveUp deletes the member of a place, in the background. One that cannot be deleted ends with its lease.
func (d *etcdDriver) giveUp(m member) {
	if m.id == "" {
		return
	}
	d.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
		defer cancel()
		if d.leave(ctx, m) != nil {
			d.leases.left(m.id, 0)
		}
	})
}
