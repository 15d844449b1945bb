package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// New makes a Locker on client, which stays the caller's. It asks etcd nothing yet.
func New(client *clientv3.Client, opts ...locker.Option) (*locker.Client, error) {
	if client == nil || client.ActiveConnection() == nil {
		return nil, fmt.Errorf("locker: %w: the client is nil, or has no connection: want one of clientv3.New", driver.ErrInvalid)
	}
	return locker.New(NewDriver(client), opts...)
}

const (
	// mostAttempts is how many attempts are under way at a time: renewals and releases share
	// the client's connections with thousands of callers.
	mostAttempts = 64
	// tokensPerGrant is how many tokens a revision stands for, so that the Locker can use some
	// for hand-overs.
	tokensPerGrant = 32
)

// etcdDriver is a driver.Driver, driver.Notifier, driver.Inspector, driver.Signaller, driver.LossDetector,
// driver.PermitKeeper and driver.PermitInspector.
type etcdDriver struct {
	conn     *conn
	watcher  clientv3.Watcher
	attempts chan struct{} // so many of Acquire may be under way
	prefix   string        // begins all keys of the Locker
	newID    func() string // makes an id that no claim has
	leases   leases
	losses   atomic.Pointer[lossWatch] // the last one; nil: none yet

	base       context.Context // ends with Close, and what is in the background with it
	stop       context.CancelFunc
	background sync.WaitGroup

	mu     sync.Mutex
	closed bool
	places map[string]*place // by key, of the Watches that are open
}

// NewDriver makes the driver that New gives to its Locker, for those who wrap it.
func NewDriver(client *clientv3.Client) driver.Driver {
	d := &etcdDriver{
		conn: newConn(client), watcher: clientv3.NewWatcher(client),
		attempts: make(chan struct{}, mostAttempts), places: make(map[string]*place),
	}
	d.base, d.stop = context.WithCancel(context.Background())
	d.leases = leases{conn: d.conn, streams: newStreams(d.base, d.conn), spawn: d.spawn, claims: make(map[string]*lease)}
	return d
}

// Name implements driver.Driver.
func (*etcdDriver) Name() string { return "etcd" }

// Acquire implements driver.Driver. A lease comes first: it lasts for the TTL from now on before
// the member that is to hold is put with it.
func (d *etcdDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	select {
	case d.attempts <- struct{}{}:
		defer func() { <-d.attempts }()
	case <-ctx.Done():
		return driver.Answer{}, storeError(ctx.Err(), true)
	}
	asked := time.Now()
	var m member
	var l line
	var err error
	p := d.place(req, false)
	if p == nil {
		m = member{req.Key, req.ID}
		if l, err = d.try(ctx, m, req); err == nil && l.isBehindPermits() && req.Waits {
			p = d.place(req, true)
		}
	}
	if p != nil {
		defer p.asked()
		m, l, err = d.wait(ctx, p, req)
	}
	if err != nil {
		return driver.Answer{}, err
	}
	a := driver.Answer{Granted: l.holds, Free: l.free, Limit: l.other}
	if !a.Granted {
		a.Bids = req.Limit > 0 && l.revision != 0
		return a, nil
	}
	if m.id != req.ID {
		a.Claim, a.Since, a.TTL = m.id, asked, req.TTL
	}
	if req.Fencing {
		a.Tokens = min(max(req.Tokens, 1), tokensPerGrant)
		if a.Token, err = d.token(ctx, l.base, l.revision); err != nil {
			d.giveUp(m) // nobody learns of this grant
			return driver.Answer{}, err
		}
	}
	return a, nil
}

// line describes the members of a key, for one of them.
type line struct {
	holds    bool             // the member holds the key, or has its permits
	revision int64            // created the member; 0: there is none
	modified int64            // the revision that wrote the member last
	lease    clientv3.LeaseID // the member's
	base     *mvccpb.KeyValue // what tokens count from

	permits
}

// look reads a line.
func look(m member, c driver.Claim) []clientv3.Op {
	members := first(m.key)
	if c.Limit > 0 {
		members = all(m.key)
	}
	return []clientv3.Op{members, clientv3.OpGet(m.name()), clientv3.OpGet(tokensKey)}
}

// lineOf returns the line that the last operations of a transaction have read.
func lineOf(m member, c driver.Claim, res *clientv3.TxnResponse) line {
	found := res.Responses[len(res.Responses)-3:]
	members, own := found[0].GetResponseRange().Kvs, kv(found[1])
	l := line{permits: permitsIn(members, m, c, res)}
	if own != nil {
		l.holds, l.revision, l.modified = holds(members, m.name()), own.CreateRevision, own.ModRevision
		l.lease, l.base = clientv3.LeaseID(own.Lease), kv(found[2])
	}
	return l
}

// enter puts a member on a condition, and reads the line. A member that is there already
// is not put again, so that a command which arrives twice changes nothing.
func (d *etcdDriver) enter(ctx context.Context, m member, c driver.Claim, l *lease, may clientv3.Cmp) (line, error) {
	put := clientv3.OpPut(m.name(), valueOf(c), clientv3.WithLease(l.id))
	res, err := d.txn(ctx, []clientv3.Cmp{may}, append([]clientv3.Op{put}, look(m, c)...), look(m, c))
	if err != nil {
		return line{}, err
	}
	return lineOf(m, c, res), nil
}

// try puts the member if the key is free or, of permits, if they fit. A member that is there, since the attempt is
// repeated, gets the lease of this attempt.
func (d *etcdDriver) try(ctx context.Context, m member, req driver.Request) (line, error) {
	l, err := d.leases.take(ctx, req.TTL)
	if err != nil {
		return line{}, storeError(err, true)
	}
	is, err := d.enterLine(ctx, m, req.Claim, l)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // a person has revoked it, or the store has lost its data
		if l, err = d.leases.make(ctx, req.TTL); err != nil {
			return line{}, storeError(err, true)
		}
		is, err = d.enterLine(ctx, m, req.Claim, l)
	}
	switch {
	case err != nil:
		d.leases.spend(l) // it may put the member yet
		return line{}, err
	case !is.holds:
		d.leases.rest(l)
		return is, nil
	case is.lease != l.id:
		return d.move(ctx, m, req.Claim, is, l)
	}
	d.leases.keep(m.id, l, is.modified, 0)
	return is, nil
}

// enterLine puts the member on condition that nobody was put since the line was read, into which it fits. It knows of
// no line at first: a key without members costs one command. Members that have gone since leave room.
func (d *etcdDriver) enterLine(ctx context.Context, m member, c driver.Claim, l *lease) (line, error) {
	start, end := rangeOf(m.key)
	for seen := int64(0); ; {
		unchanged := clientv3.Compare(clientv3.ModRevision(start).WithRange(end), "<", seen+1)
		is, err := d.enter(ctx, m, c, l, unchanged)
		if err != nil || is.revision != 0 || !is.fits {
			return is, err
		}
		seen = is.seen
	}
}

// move gives a member that is first another lease, on condition that nobody has written the member since it
// was read: a move that arrives late, after its lease was given up, must not take the member along.
func (d *etcdDriver) move(ctx context.Context, m member, c driver.Claim, is line, l *lease) (line, error) {
	next, err := d.enter(ctx, m, c, l, clientv3.Compare(clientv3.ModRevision(m.name()), "=", is.modified))
	switch {
	case err != nil:
		d.leases.spend(l) // nobody learns of this grant
		return line{}, applied(err)
	case next.lease != l.id: // it has ended meanwhile, or an earlier move has arrived: the next look sees to it
		d.leases.rest(l)
		next.holds = false
		return next, nil
	}
	d.leases.keep(m.id, l, next.modified, is.lease)
	return next, nil
}

// token makes a token of the revision that created a member. base is the time when tokens
// were first asked for, in µs, and its revision what they count from. Revisions grow slower than
// 31,250 per second in the long run, so that a store which replaces this one begins later.
func (d *etcdDriver) token(ctx context.Context, base *mvccpb.KeyValue, revision int64) (int64, error) {
	if base == nil {
		none := clientv3.Compare(clientv3.CreateRevision(tokensKey), "=", 0)
		get := clientv3.OpGet(tokensKey)
		put := clientv3.OpPut(tokensKey, strconv.FormatInt(time.Now().UnixMicro(), 10))
		res, err := d.txn(ctx, []clientv3.Cmp{none}, []clientv3.Op{put, get}, []clientv3.Op{get})
		if err != nil {
			return 0, applied(err)
		}
		base = kv(res.Responses[len(res.Responses)-1])
	}
	micros, err := strconv.ParseInt(string(base.Value), 10, 64)
	if err != nil {
		err = fmt.Errorf("the key %s has the value %q: want a time in µs; once it is deleted the next Lock writes it", tokensKey, base.Value)
		return 0, &driver.StoreError{Permanent: true, Err: err}
	}
	return micros + (revision-base.CreateRevision)*tokensPerGrant, nil
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)

// Release implements driver.Driver.
func (d *etcdDriver) Release(ctx context.Context, c driver.Claim) error {
	if m, waits := d.waiting(c); waits {
		if m.id != "" {
			_ = d.leave(ctx, m, c.Limit)
		}
		return errLost
	}
	return d.leave(ctx, member{c.Key, c.ID}, c.Limit)
}

// leave deletes a member. No other claim has its name, so that a command which arrives late or
// twice deletes nothing else.
func (d *etcdDriver) leave(ctx context.Context, m member, limit int) error {
	there := clientv3.Compare(clientv3.CreateRevision(m.name()), ">", 0)
	res, err := d.txn(ctx, []clientv3.Cmp{there}, []clientv3.Op{holder(m, limit), clientv3.OpDelete(m.name(), clientv3.WithPrevKV())}, nil)
	if err != nil {
		return err
	}
	defer d.leases.afterClose(ctx)
	if !res.Succeeded {
		d.leases.left(m.id, 0)
		return errLost
	}
	own := res.Responses[1].GetResponseDeleteRange().PrevKvs[0]
	d.leases.left(m.id, clientv3.LeaseID(own.Lease))
	if string(kv(res.Responses[0]).Key) != m.name() {
		return errLost // it was waiting
	}
	return nil
}

// Close implements driver.Driver. The client is the caller's.
func (d *etcdDriver) Close() error {
	defer time.AfterFunc(500*time.Millisecond, d.stop).Stop()
	d.leases.close()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.background.Wait()
	d.stop()
	_ = d.watcher.Close()
	return nil
}

// spawn runs f in the background, and reports whether it does: not once the driver is closed.
func (d *etcdDriver) spawn(f func(ctx context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.background.Go(func() { f(d.base) })
	return true
}

// txn runs a transaction, which a member without a leader refuses at once.
func (d *etcdDriver) txn(ctx context.Context, ifs []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	losses := d.losses.Load()
	seen := losses.position()
	res, err := send(ctx, d.conn, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return d.conn.kv.Txn(ctx).If(ifs...).Then(then...).Else(els...).Commit()
	})
	if err == nil {
		d.conn.learn(res.Header)
		if res.Header.Revision < seen { // the store had more revisions before this transaction was sent: it is another store
			losses.Close()
		}
	}
	return res, storeError(err, false)
}
