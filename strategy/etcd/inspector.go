package etcd

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/glob"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Inspect implements driver.Inspector. A member without a lease is another program's: a holder without an ID.
func (d *etcdDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h := driver.Holder{Key: key}
	members, base, err := d.members(ctx, key)
	if err != nil || len(members) == 0 {
		return h, err
	}
	holding := holding(members)
	for _, kv := range members[len(holding):] {
		h.Queue = append(h.Queue, d.member(kv, nil).Owner)
	}
	waiting := h.Queue
	if h, err = d.remaining(ctx, d.member(members[0], base), members[0].Lease); err != nil {
		return h, err
	}
	h.Queue, h.Waiting = waiting, len(waiting)
	if h.Limit > 0 {
		h.ID, h.Owner, h.Metadata = "", "", nil
		h.Permits, h.Limit = out(holding), limitOf(members)
	}
	return h, nil
}

// members reads the members of a key in their order, and what tokens count from.
func (d *etcdDriver) members(ctx context.Context, key string) (members []*mvccpb.KeyValue, base *mvccpb.KeyValue, err error) {
	res, err := d.txn(ctx, nil, []clientv3.Op{all(key), clientv3.OpGet(tokensKey)}, nil)
	if err != nil {
		return nil, nil, err
	}
	return res.Responses[0].GetResponseRange().Kvs, kv(res.Responses[1]), nil
}

// member describes a member. Tokens count from base, which may be nil.
func (d *etcdDriver) member(kv, base *mvccpb.KeyValue) driver.Holder {
	m, _ := memberOf(string(kv.Key))
	p := permitsOf(kv)
	h := driver.Holder{Key: m.key, Held: true, ID: m.id, Owner: cmp.Or(p.owner, m.id), Permits: p.count, Limit: p.limit, Remaining: -1}
	if base != nil {
		h.Token, _ = d.token(d.base, base, kv.CreateRevision)
	}
	return h
}

// remaining completes what member has made of one with that lease.
func (d *etcdDriver) remaining(ctx context.Context, h driver.Holder, lease int64) (driver.Holder, error) {
	if lease == 0 {
		h.ID, h.Owner = "", ""
		return h, nil
	}
	h.Strategy, h.Metadata = d.Name(), driver.MetadataOf(h.ID)
	ttl, err := send(ctx, d.conn, func(ctx context.Context) (*pb.LeaseTimeToLiveResponse, error) {
		return d.conn.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease})
	})
	if err != nil {
		return driver.Holder{Key: h.Key}, storeError(err, false)
	}
	h.Remaining = time.Duration(max(ttl.TTL, 0)+1) * time.Second // etcd rounds down
	return h, nil
}

// Keys implements driver.Inspector. It reads a page at a time, of the names under the Locker's prefix: a user may read
// no others, and a pattern that the Locker gives begins with the prefix.
func (d *etcdDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	const page = 1000
	return glob.Keys(pattern, func(from string, add func(string)) (string, error) {
		get := clientv3.OpGet(cmp.Or(from, d.under()), clientv3.WithRange(clientv3.GetPrefixRangeEnd(d.under())), clientv3.WithKeysOnly(), clientv3.WithLimit(page))
		res, err := d.txn(ctx, nil, []clientv3.Op{get}, nil)
		if err != nil {
			return "", err
		}
		kvs := res.Responses[0].GetResponseRange().Kvs
		for _, kv := range kvs {
			if m, ok := memberOf(string(kv.Key)); ok {
				add(m.key)
			}
		}
		if len(kvs) < page {
			return "", nil
		}
		return string(kvs[page-1].Key) + "\x00", nil
	})
}

// Break implements driver.Inspector. A claim's id is used once, so that this is a release.
func (d *etcdDriver) Break(ctx context.Context, h driver.Holder) error {
	return d.leave(ctx, member{h.Key, h.ID}, h.Limit)
}
