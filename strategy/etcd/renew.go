package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A batch of renewals is a stream and a transaction. A server refuses transactions of more than
// 128 operations, and requests above 1.5 MiB.
const (
	mostInBatch  = 64
	bytesInBatch = 256 << 10 // of keys, which are there twice
	// grantsAtOnce is how many leases are granted beside one another for the claims of a batch.
	grantsAtOnce = 16
)

// Renew implements driver.Driver, in batches beside one another.
func (d *etcdDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	r := renewal{d, time.Second}
	if end, ok := ctx.Deadline(); ok {
		r.patience = max(time.Until(end)/6, time.Millisecond)
	}
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
			outcome := r.extend(ctx, batch)
			mu.Lock()
			defer mu.Unlock()
			for i, err := range outcome {
				answer(begin+i, err)
			}
		})
		from = to
	}
	wg.Wait()
}

// renewal is one Renew.
type renewal struct {
	*etcdDriver
	patience time.Duration // after which a command is sent once more
}

// hedged runs a command of a renewal, which changes nothing when it arrives once more, and returns its first answer. Without
// one it runs the command again beside the first try, twice at most: the client goes round the members, and one that is
// frozen answers nothing.
func hedged[T any](ctx context.Context, r renewal, command func(ctx context.Context, again bool) (T, error)) (T, error) {
	const tries = 3
	type answer struct {
		res T
		err error
	}
	answers := make(chan answer, tries)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, underWay := 0, 0
	for next := time.After(0); ; {
		select {
		case <-next:
			begun++
			underWay++
			again := begun > 1
			go func() {
				res, err := command(ctx, again)
				answers <- answer{res, err}
			}()
			if begun < tries {
				next = time.After(r.patience)
			}
		case a := <-answers:
			if underWay--; a.err == nil || underWay == 0 {
				return a.res, a.err
			}
		}
	}
}

// extend extends the leases of a batch, and then looks whether each claim's member is the first of its line and has
// the lease: that a lease lives does not prove that the key is there.
//
// The look is decided by the majority. When it shows the term of a lease, no leader of a later term was elected
// before, and what has extended the lease is the leader of its term. Otherwise the member moves to another lease; see
// lease.
func (r renewal) extend(ctx context.Context, batch []driver.Claim) []error {
	begun := time.Now()
	known := make([]*lease, len(batch))
	var all []*lease
	looks := make([]clientv3.Op, len(batch))
	for i, c := range batch {
		looks[i] = holder(member{c.Key, c.ID}, c.Limit)
		if known[i] = r.leases.of(c.ID); known[i] != nil {
			all = append(all, known[i])
		}
	}
	extended, err := hedged(ctx, r, func(ctx context.Context, again bool) (map[*lease]bool, error) {
		return r.leases.keepAlive(ctx, again, all...)
	})
	if err != nil {
		return slices.Repeat([]error{storeError(err, false)}, len(batch))
	}
	res, err := r.hedgedTxn(ctx, looks)
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	outcome := make([]error, len(batch))
	var moves []*transfer
	for i, c := range batch {
		l, own := known[i], kv(res.Responses[i])
		switch {
		case r.waits(c):
			outcome[i] = errLost
		case own == nil || string(own.Key) != (member{c.Key, c.ID}).name():
			r.leases.left(c.ID, 0)
			outcome[i] = errLost
		case extended[l] && own.Lease == int64(l.id) && l.term == res.Header.RaftTerm:
			r.leases.lasts(l, begun)
		default:
			moves = append(moves, &transfer{claim: c, own: own, outcome: &outcome[i]})
		}
	}
	if changed := r.transfer(ctx, moves); len(changed) > 0 {
		claims := make([]driver.Claim, len(changed))
		for i, t := range changed {
			claims[i] = t.claim
		}
		for i, err := range r.extend(ctx, claims) {
			*changed[i].outcome = err
		}
	}
	return outcome
}

func (r renewal) hedgedTxn(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	return hedged(ctx, r, func(ctx context.Context, _ bool) (*clientv3.TxnResponse, error) { return r.txn(ctx, nil, ops, nil) })
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
func (r renewal) transfer(ctx context.Context, moves []*transfer) (changed []*transfer) {
	r.grantAll(ctx, moves)
	moves = slices.DeleteFunc(moves, func(t *transfer) bool { return t.to == nil })
	if len(moves) == 0 {
		return nil
	}
	ops := make([]clientv3.Op, len(moves))
	for i, t := range moves {
		name := string(t.own.Key)
		unchanged := clientv3.Compare(clientv3.ModRevision(name), "=", t.own.ModRevision)
		put := clientv3.OpPut(name, string(t.own.Value), clientv3.WithLease(t.to.id))
		ops[i] = clientv3.OpTxn([]clientv3.Cmp{unchanged}, []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(name)})
	}
	res, err := r.hedgedTxn(ctx, ops)
	for i, t := range moves {
		if err != nil {
			*t.outcome = err
			r.leases.expect(t.claim.ID, t.to, t.own.ModRevision)
			continue
		}
		written := res.Header.Revision
		if did := res.Responses[i].GetResponseTxn(); !did.Succeeded {
			now := kv(did.Responses[0])
			if now == nil || now.Lease != int64(t.to.id) { // else an earlier try has arrived
				r.leases.spend(t.to) // an earlier try may have given it to the member, and another command replaced it
				changed = append(changed, t)
				continue
			}
			written = now.ModRevision
		}
		r.leases.keep(t.claim.ID, t.to, written, clientv3.LeaseID(t.own.Lease))
	}
	return changed
}

// grantAll makes the leases.
func (r renewal) grantAll(ctx context.Context, moves []*transfer) {
	var all sync.WaitGroup
	places := make(chan struct{}, grantsAtOnce)
	for _, t := range moves {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			l := r.leases.plan(t.claim.TTL)
			if _, err := hedged(ctx, r, func(ctx context.Context, _ bool) (struct{}, error) { return struct{}{}, r.leases.grant(ctx, l) }); err != nil {
				*t.outcome = storeError(err, false)
				r.leases.spend(l)
				return
			}
			t.to = l
		})
	}
	all.Wait()
}
