package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A batch of renewals is a transaction and a stream. A server refuses transactions of more than
// 128 operations, and requests above 1.5 MiB.
const (
	mostInBatch  = 64
	bytesInBatch = 256 << 10 // of keys, which are there twice
	// grantsAtOnce is how many leases are granted beside one another for the claims of a batch.
	grantsAtOnce = 16
)

// Renew implements driver.Driver, in batches beside one another.
func (d *etcdDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	var wg sync.WaitGroup
	var mu sync.Mutex // one answer at a time
	for from := 0; from < len(claims); {
		to, size := from, 0
		for to < len(claims) && to-from < mostInBatch && (to == from || size+len(claims[to].Key) <= bytesInBatch) {
			size += len(claims[to].Key)
			to++
		}
		begin, batch := from, claims[from:to]
		wg.Go(func() {
			d.renew(ctx, batch, func(i int, err error) {
				mu.Lock()
				defer mu.Unlock()
				answer(begin+i, err)
			})
		})
		from = to
	}
	wg.Wait()
}

// renew extends a batch. When a third of its time is over it begins anew beside the first try, on the connections
// that are next in turn: a member that is frozen answers nothing, and each command goes to another member.
func (d *etcdDriver) renew(ctx context.Context, batch []driver.Claim, answer func(i int, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan []error, 2)
	begin := func() { go func() { outcomes <- d.extend(ctx, batch) }() }
	late := make(<-chan time.Time)
	if end, ok := ctx.Deadline(); ok {
		late = time.After(time.Until(end) / 3)
	}
	begin()
	for underWay := 1; ; {
		select {
		case <-late:
			underWay++
			begin()
		case outcome := <-outcomes:
			underWay--
			if underWay > 0 && slices.ContainsFunc(outcome, func(err error) bool { return err != nil && !errors.Is(err, errLost) }) {
				continue
			}
			for i, err := range outcome {
				answer(i, err)
			}
			return
		}
	}
}

// extend extends the leases of a batch, and then looks whether each claim's member is the first of its line and has
// the lease: that a lease lives does not prove that the key is there.
//
// The look is decided by the majority. When it shows the term of a lease, no leader of a later term was elected
// before, and what has extended the lease is the leader of its term. Otherwise the member moves to another lease; see
// lease.
func (d *etcdDriver) extend(ctx context.Context, batch []driver.Claim) []error {
	begun := time.Now()
	known := make([]*lease, len(batch))
	var all []*lease
	look := make([]clientv3.Op, len(batch))
	for i, c := range batch {
		look[i] = first(c.Key)
		if known[i] = d.leases.of(c.ID); known[i] != nil {
			all = append(all, known[i])
		}
	}
	extended, err := d.leases.keepAlive(ctx, all)
	if err != nil {
		return slices.Repeat([]error{storeError(err, false)}, len(batch))
	}
	res, err := d.txn(ctx, nil, look, nil)
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	outcome := make([]error, len(batch))
	var moves []*transfer
	for i, c := range batch {
		l, alive := known[i], false
		if l != nil {
			alive, extended = extended[0], extended[1:]
		}
		own := kv(res.Responses[i])
		switch {
		case own == nil || string(own.Key) != (member{c.Key, c.ID}).name():
			d.leases.left(c.ID, 0)
			outcome[i] = errLost
		case alive && own.Lease == int64(l.id) && l.term == res.Header.RaftTerm:
			d.leases.lasts(l, begun)
		default:
			moves = append(moves, &transfer{claim: c, own: own, outcome: &outcome[i]})
		}
	}
	if changed := d.transfer(ctx, moves); len(changed) > 0 {
		claims := make([]driver.Claim, len(changed))
		for i, t := range changed {
			claims[i] = t.claim
		}
		for i, err := range d.extend(ctx, claims) {
			*changed[i].outcome = err
		}
	}
	return outcome
}

// transfer is a member that moves to another lease.
type transfer struct {
	claim   driver.Claim
	own     *mvccpb.KeyValue
	to      *lease
	outcome *error
}

// transfer moves members to leases that last from now, each on condition that nobody has written the member since it was
// read. A lease that a member may have got without our learning of it is not revoked: the next renewal or the release
// sees which one the member has. transfer returns the moves whose members were written meanwhile, by another renewal of
// the claim, or deleted.
func (d *etcdDriver) transfer(ctx context.Context, moves []*transfer) (changed []*transfer) {
	d.grantAll(ctx, moves)
	moves = slices.DeleteFunc(moves, func(t *transfer) bool { return t.to == nil })
	if len(moves) == 0 {
		return nil
	}
	var ops []clientv3.Op
	for _, t := range moves {
		name := string(t.own.Key)
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", t.own.ModRevision)},
			[]clientv3.Op{clientv3.OpPut(name, string(t.own.Value), clientv3.WithLease(t.to.id))}, nil))
	}
	res, err := d.txn(ctx, nil, ops, nil)
	for i, t := range moves {
		switch {
		case err != nil && driver.MaybeApplied(err):
			*t.outcome = err
			d.leases.expect(t.claim.ID, t.to)
		case err != nil:
			*t.outcome = err
			d.leases.spend(t.to)
		case !res.Responses[i].GetResponseTxn().Succeeded:
			d.leases.rest(t.to)
			changed = append(changed, t)
		default:
			d.leases.keep(t.claim.ID, t.to, clientv3.LeaseID(t.own.Lease))
		}
	}
	return changed
}

// grantAll makes the leases.
func (d *etcdDriver) grantAll(ctx context.Context, moves []*transfer) {
	var all sync.WaitGroup
	places := make(chan struct{}, grantsAtOnce)
	for _, t := range moves {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			var err error
			if t.to, err = d.leases.grant(ctx, t.claim.TTL); err != nil {
				*t.outcome = storeError(err, false)
			}
		})
	}
	all.Wait()
}
