package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A batch of renewals is a transaction and a stream. A server refuses transactions of more than
// 128 operations, and requests above 1.5 MiB.
const (
	mostInBatch  = 64
	bytesInBatch = 256 << 10 // of keys, which are there twice
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

// extend looks whether each claim's member is the first of its line, for a lease that lives does not
// prove that the key is there, and then extends the leases that these members have. A
// member that is deleted between the two is deleted as if it were after both.
func (d *etcdDriver) extend(ctx context.Context, batch []driver.Claim) []error {
	outcome := make([]error, len(batch))
	look := make([]clientv3.Op, len(batch))
	for i, c := range batch {
		look[i] = first(c.Key)
	}
	res, err := d.txn(ctx, nil, look, nil)
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	var held []int
	var all []*lease
	for i, c := range batch {
		own := kv(res.Responses[i])
		if own == nil || string(own.Key) != (member{c.Key, c.ID}).name() {
			d.leases.left(c.ID, 0)
			outcome[i] = errLost
			continue
		}
		held, all = append(held, i), append(all, d.leases.renewed(c.ID, clientv3.LeaseID(own.Lease), c.TTL))
	}
	done := 0
	err = d.leases.keepAlive(ctx, all, res.Header.RaftTerm, func(n int, err error) error {
		outcome[held[n]] = err
		done++
		return nil
	})
	for _, i := range held[done:] {
		outcome[i] = storeError(err, false)
	}
	return outcome
}
