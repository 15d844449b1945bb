package etcd

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
	tokensPerGrant = locker.MaxHandOvers + 1
)

// etcdDriver is a driver.Driver, driver.Notifier and driver.Inspector.
type etcdDriver struct {
	client   *clientv3.Client
	attempts chan struct{} // so many of Acquire may be under way
	leases   leases

	base       context.Context // ends with Close, and what is in the background with it
	stop       context.CancelFunc
	background sync.WaitGroup

	mu     sync.Mutex
	closed bool
	places map[string]*place // by key
}

// NewDriver makes the driver that New gives to its Locker, for those who wrap it.
func NewDriver(client *clientv3.Client) driver.Driver {
	d := &etcdDriver{client: client, attempts: make(chan struct{}, mostAttempts), places: make(map[string]*place)}
	d.base, d.stop = context.WithCancel(context.Background())
	d.leases = leases{client: client, spawn: d.spawn, claims: make(map[string]*lease)}
	return d
}

// Name implements driver.Driver.
func (*etcdDriver) Name() string { return "etcd" }

// Acquire implements driver.Driver. The lease comes first: it lasts for the TTL from now
// before the member is put or looked at, so that a member which is found first in its line
// holds for that long.
func (d *etcdDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	select {
	case d.attempts <- struct{}{}:
		defer func() { <-d.attempts }()
	case <-ctx.Done():
		return driver.Answer{}, storeError(ctx.Err(), true)
	}
	asked := time.Now()
	p, id := d.seat(req)
	l, known, err := d.leases.forClaim(ctx, id, req.TTL)
	if err != nil {
		return driver.Answer{}, storeError(err, true)
	}
	if !known && p != nil {
		id = req.ID // the place was lost with its lease
	}
	line, err := d.enter(ctx, member{req.Key, id}, req, l, p != nil)
	if err != nil {
		// The command may arrive yet, with this lease. In a line the place stays.
		d.leases.doubt(id, l, p != nil && known)
		return driver.Answer{}, err
	}
	if !line.granted {
		if p == nil {
			d.leases.refused(id, l, known)
			return driver.Answer{}, nil
		}
		d.leases.keep(id, l)
		p.wait(ctx, id, req, line.revision)
		return driver.Answer{}, nil
	}
	d.leases.keep(id, l)
	if p != nil {
		p.granted(id)
	}
	a := driver.Answer{Granted: true}
	if id != req.ID {
		a.Claim, a.Since, a.TTL = id, asked, req.TTL
	}
	if req.Fencing {
		a.Tokens = min(max(req.Tokens, 1), tokensPerGrant)
		if a.Token, err = d.token(ctx, line.base, line.revision); err != nil {
			d.giveUp(member{req.Key, id}) // nobody learns of this grant
			return driver.Answer{}, err
		}
	}
	return a, nil
}

// line is what an attempt finds: whether its member is the first, the revision that created
// it (0: there is none), and the key that tokens count from.
type line struct {
	granted  bool
	revision int64
	base     *mvccpb.KeyValue
}

// enter puts the member if nobody holds the key, or with wait at the end of the line, and
// looks who is first. A member that is there already is not put again, so that a command
// which arrives twice changes nothing.
func (d *etcdDriver) enter(ctx context.Context, m member, req driver.Request, l *lease, wait bool) (line, error) {
	start, end := rangeOf(m.key)
	may := clientv3.Compare(clientv3.CreateRevision(start).WithRange(end), "=", 0)
	if wait {
		may = clientv3.Compare(clientv3.CreateRevision(m.name()), "=", 0)
	}
	put := clientv3.OpPut(m.name(), ownerOf(req), clientv3.WithLease(l.id))
	look := []clientv3.Op{first(m.key), clientv3.OpGet(m.name()), clientv3.OpGet(tokensKey)}
	res, err := d.txn(ctx, []clientv3.Cmp{may}, append([]clientv3.Op{put}, look...), look)
	if err != nil {
		return line{}, err
	}
	found := res.Responses[len(res.Responses)-len(look):]
	ahead, own, base := kv(found[0]), kv(found[1]), kv(found[2])
	if own == nil {
		return line{}, nil
	}
	if own.Lease != int64(l.id) { // of an attempt by this id whose lease is being revoked
		same := clientv3.Compare(clientv3.CreateRevision(m.name()), "=", own.CreateRevision)
		res, err := d.txn(ctx, []clientv3.Cmp{same}, []clientv3.Op{put}, nil)
		if err != nil || !res.Succeeded {
			return line{}, err
		}
	}
	return line{string(ahead.Key) == m.name(), own.CreateRevision, base}, nil
}

// token makes a token of the revision that created a member. base is the time when tokens
// were first asked for, in µs, and its revision what they count from. Revisions grow slower than
// 31,250 a second in the long run, so that a store which replaces this one begins later.
func (d *etcdDriver) token(ctx context.Context, base *mvccpb.KeyValue, revision int64) (int64, error) {
	if base == nil {
		none := clientv3.Compare(clientv3.CreateRevision(tokensKey), "=", 0)
		get := clientv3.OpGet(tokensKey)
		put := clientv3.OpPut(tokensKey, strconv.FormatInt(time.Now().UnixMicro(), 10))
		res, err := d.txn(ctx, []clientv3.Cmp{none}, []clientv3.Op{put, get}, []clientv3.Op{get})
		if err != nil {
			return 0, &driver.StoreError{Err: err, Permanent: driver.IsPermanent(err)} // the member was put
		}
		base = kv(res.Responses[len(res.Responses)-1])
	}
	micros, err := strconv.ParseInt(string(base.Value), 10, 64)
	if err != nil {
		return 0, &driver.StoreError{Permanent: true, Err: fmt.Errorf("the key %s has the value %q: want a time in µs; once it is deleted the next Lock writes it", tokensKey, base.Value)}
	}
	return micros + (revision-base.CreateRevision)*tokensPerGrant, nil
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", driver.ErrLost)

// Release implements driver.Driver.
func (d *etcdDriver) Release(ctx context.Context, c driver.Claim) error {
	return d.leave(ctx, member{c.Key, c.ID})
}

// leave deletes a member. No other claim has its name, so that a command which arrives late or
// twice deletes nothing else.
func (d *etcdDriver) leave(ctx context.Context, m member) error {
	there := clientv3.Compare(clientv3.CreateRevision(m.name()), ">", 0)
	res, err := d.txn(ctx, []clientv3.Cmp{there}, []clientv3.Op{first(m.key), clientv3.OpDelete(m.name(), clientv3.WithPrevKV())}, nil)
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
	res, err := elsewhere(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return d.client.Txn(ctx).If(ifs...).Then(then...).Else(els...).Commit()
	})
	return res, storeError(err, false)
}
