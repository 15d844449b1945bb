package etcd

import (
	"context"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/wake"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// place is a driver.Watch: a member in line, and an etcd watch on the one before it, so that a
// release wakes one waiter. It has neither before the first attempt is refused under it. That
// attempt misses no release: the watch begins at the revision at which the member before was seen.
type place struct {
	wake.Signal
	d   *etcdDriver
	key string

	lease *lease // of the attempt under way: the member's; nil is none

	// Guarded by etcdDriver.mu:
	asking    bool        // an attempt is under way
	id, value string      // of the member; "" is none
	last      string      // the claim of the last attempt that was refused
	before    *watch      // on the member before, or on all of them; nil is none
	silent    *time.Timer // closes a place without a Watch
	closed    bool
}

// Watch implements driver.Notifier. It sends nothing.
func (d *etcdDriver) Watch(_ context.Context, key string) (driver.Watch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[key]
	if p == nil || p.silent == nil {
		p = d.newPlace(key)
	} else {
		p.silent.Stop()
		p.silent = nil
	}
	return p, nil
}

// newPlace needs etcdDriver.mu.
func (d *etcdDriver) newPlace(key string) *place {
	p := &place{Signal: wake.New(), d: d, key: key}
	d.places[key] = p
	return p
}

// placeTTL is how long a member in line lasts: until some of the Locker's looks, one a second, have failed to come. A
// process that has died while it waited holds the others up for no longer.
const placeTTL = 2 * time.Second

// place returns the place in which an attempt waits; nil if it does not. bids says that the attempt has found permits, and has no
// Watch: it gets a place without one, for driver.BidTime after its last attempt, unless a Watch takes that over. A place
// serves one attempt at a time, which ends by asked: attempts that overlap would be granted one member, and each give it
// another lease. The Locker lets attempts overlap when one is not answered for 300 ms; the later ones then
// try for themselves, and are refused while the place's member is in line.
func (d *etcdDriver) place(req driver.Request, bids bool) *place {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.places[req.Key]
	if p == nil && bids {
		p = d.newPlace(req.Key)
		p.silent = time.AfterFunc(driver.BidTime, p.lapse)
	}
	if p == nil || p.asking || !bids && !req.Wait && !(req.Waits && p.silent != nil) {
		return nil
	}
	p.asking = true
	if p.silent != nil {
		p.silent.Stop()
	}
	return p
}

// asked ends what place began.
func (p *place) asked() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.asking = false
	if p.silent != nil {
		p.silent.Reset(driver.BidTime)
	}
}

// seat returns the claim that a place is for: that of an earlier attempt for as much by the same owner, or id.
func (p *place) seat(value, id string) string {
	p.d.mu.Lock()
	old := p.id
	if old != "" && p.value == value {
		p.d.mu.Unlock()
		return old
	}
	p.id, p.value, p.lease = id, value, nil
	p.unwatch()
	p.d.mu.Unlock()
	p.d.giveUp(member{p.key, old})
	return id
}

// wait looks after the member in line, which has a short lease. Once it is the first it gets the lease of a holder,
// and holds the key.
func (d *etcdDriver) wait(ctx context.Context, p *place, req driver.Request) (member, line, error) {
	id := req.ID
	if req.Limit > 0 {
		id = d.seatID(req.ID)
	}
	m := member{p.key, p.seat(valueOf(req.Claim), id)}
	is, err := d.queue(ctx, p, m, req.Claim)
	if err == nil && is.holds {
		is, err = d.promote(ctx, m, req, is)
	}
	switch {
	case err != nil && m.id == req.ID || is.holds:
		p.leave(m.id) // the Locker releases it
	case err == nil:
		p.waits(ctx, m, req.ID, is)
	}
	return m, is, err
}

// promote makes a holder of the first in line. Whatever becomes of that, the member is there.
func (d *etcdDriver) promote(ctx context.Context, m member, req driver.Request, is line) (line, error) {
	l, err := d.leases.take(ctx, req.TTL)
	if err != nil {
		return line{}, applied(err)
	}
	return d.move(ctx, m, req.Claim, is, l)
}

// queue puts the member at the end of the line, unless it is there.
func (d *etcdDriver) queue(ctx context.Context, p *place, m member, c driver.Claim) (line, error) {
	if p.lease != nil {
		_, err := d.leases.keepAlive(ctx, false, p.lease)
		if err != nil {
			return line{}, storeError(err, true)
		}
		res, err := d.txn(ctx, nil, look(m, c), nil)
		if err != nil {
			return line{}, err
		}
		if is := lineOf(m, c, res); is.revision != 0 {
			return is, nil
		}
	}
	d.mu.Lock()
	p.unwatch() // the watch of a member that is gone is about another line
	d.mu.Unlock()
	l, err := d.leases.make(ctx, placeTTL)
	if err != nil {
		return line{}, storeError(err, true)
	}
	is, err := d.enter(ctx, m, c, l, clientv3.Compare(clientv3.CreateRevision(m.name()), "=", 0))
	if err != nil {
		d.leases.spend(l) // it may put the member yet
		return line{}, err
	}
	p.lease = l
	return is, nil
}

// waits notes that an attempt was refused, and watches the member before the place's, or those before that have
// permits, unless that is done.
func (p *place) waits(ctx context.Context, m member, id string, is line) {
	d := p.d
	d.mu.Lock()
	p.last = id
	watched, closed := p.before != nil, p.closed
	d.mu.Unlock()
	if closed {
		d.giveUp(m)
	}
	if watched || closed {
		return
	}
	start, end := rangeOf(p.key)
	if is.members != nil {
		p.watch(start, is.seen+1, func(gone string) bool {
			is.members = without(is.members, gone)
			return holds(is.members, m.name())
		}, clientv3.WithRange(end))
		return
	}
	before := clientv3.OpGet(start, clientv3.WithRange(end), clientv3.WithMaxCreateRev(is.revision-1), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	res, err := d.txn(ctx, nil, []clientv3.Op{before}, nil)
	if err != nil {
		return // the next look watches
	}
	if last := kv(res.Responses[0]); last != nil {
		p.watch(string(last.Key), res.Header.Revision+1, func(string) bool { return true })
	} else {
		p.Send()
	}
}

// watch signals when a member is deleted that is in the way. When etcd ends the watch, the Locker's next look begins
// another one.
func (p *place) watch(name string, revision int64, frees func(gone string) bool, opts ...clientv3.OpOption) {
	w := p.d.newWatch()
	p.d.mu.Lock()
	begins := !p.closed && p.before == nil
	if begins {
		p.before = w
	}
	p.d.mu.Unlock()
	if !begins {
		w.stop()
		return
	}
	free := false
	_ = w.begin(name, revision, func(events []*clientv3.Event) bool {
		for _, e := range events {
			free = frees(string(e.Kv.Key)) || free
		}
		return !free
	}, func() { p.ends(w, free) }, append(opts, clientv3.WithFilterPut())...)
}

// ends notes that a watch has ended: the member before is gone, or etcd has ended the watch.
func (p *place) ends(w *watch, gone bool) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.before != w {
		return
	}
	if p.before = nil; gone {
		p.Send()
	}
}

// unwatch needs etcdDriver.mu.
func (p *place) unwatch() {
	if p.before != nil {
		p.before.stop()
		p.before = nil
	}
}

// leave notes that the place is no more that of the member.
func (p *place) leave(id string) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if p.id == id {
		p.id, p.last, p.lease = "", "", nil
		p.unwatch()
	}
}

// Close implements driver.Watch. A member that has become the first wakes the next one when it is deleted.
func (p *place) Close() {
	p.d.mu.Lock()
	id := p.close()
	p.d.mu.Unlock()
	p.d.giveUp(member{p.key, id})
}

// close returns the id of the member that is to be given up; "" is none. It needs etcdDriver.mu.
func (p *place) close() (id string) {
	if p.d.places[p.key] == p {
		delete(p.d.places, p.key)
	}
	id, p.id, p.closed = p.id, "", true
	p.unwatch()
	return id
}

// giveUp deletes the member of a place, in the background. One that cannot be deleted ends with its lease.
func (d *etcdDriver) giveUp(m member) {
	if m.id == "" {
		return
	}
	d.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
		defer cancel()
		if d.leave(ctx, m, 0) != nil {
			d.leases.left(m.id, 0)
		}
	})
}
