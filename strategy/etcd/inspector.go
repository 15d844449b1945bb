package etcd

import (
	"context"
	"fmt"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/distlock/locker/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Inspect implements driver.Inspector. A member without a lease is another program's: a holder without an ID.
func (d *etcdDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h := driver.Holder{Key: key}
	start, end := rangeOf(key)
	all := clientv3.OpGet(start, clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	res, err := d.txn(ctx, nil, []clientv3.Op{all, clientv3.OpGet(tokensKey)}, nil)
	if err != nil {
		return h, err
	}
	for i, kv := range res.Responses[0].GetResponseRange().Kvs {
		m, _ := memberOf(string(kv.Key))
		owner := string(kv.Value)
		if owner == "" {
			owner = m.id
		}
		if i == 0 {
			h.Held, h.ID, h.Owner = true, m.id, owner
		} else {
			h.Queue = append(h.Queue, owner)
		}
	}
	if !h.Held {
		return h, nil
	}
	h.Waiting = len(h.Queue)
	own := kv(res.Responses[0])
	if base := kv(res.Responses[1]); base != nil {
		h.Token, _ = d.token(ctx, base, own.CreateRevision)
	}
	if own.Lease == 0 {
		h.ID, h.Owner, h.Remaining = "", "", -1
		return h, nil
	}
	h.Strategy, h.Metadata = d.Name(), driver.MetadataOf(h.ID)
	ttl, err := send(ctx, d.conn, func(ctx context.Context) (*pb.LeaseTimeToLiveResponse, error) {
		return d.conn.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: own.Lease})
	})
	if err != nil {
		return driver.Holder{Key: key}, storeError(err, false)
	}
	h.Remaining = time.Duration(max(ttl.TTL, 0)+1) * time.Second // etcd rounds down
	return h, nil
}

// Keys implements driver.Inspector. It reads a page at a time.
func (d *etcdDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	const page = 1000
	return func(yield func(string, error) bool) {
		if _, err := path.Match(pattern, ""); err != nil {
			yield("", fmt.Errorf("%w: the pattern %q: %w", driver.ErrInvalid, pattern, err))
			return
		}
		pattern, last := noSlash.Replace(pattern), ""
		for from := root; ; {
			get := clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithKeysOnly(), clientv3.WithLimit(page))
			res, err := d.txn(ctx, nil, []clientv3.Op{get}, nil)
			if err != nil {
				yield("", err)
				return
			}
			kvs := res.Responses[0].GetResponseRange().Kvs
			for _, kv := range kvs {
				from = string(kv.Key) + "\x00"
				m, ok := memberOf(string(kv.Key))
				if !ok || m.key == last {
					continue
				}
				last = m.key
				if ok, _ := path.Match(pattern, noSlash.Replace(m.key)); ok && !yield(m.key, nil) {
					return
				}
			}
			if len(kvs) < page {
				return
			}
		}
	}
}

// noSlash: for path.Match no * is a slash.
var noSlash = strings.NewReplacer("/", "\x00")

// Break implements driver.Inspector. A claim's id is used once, so that this is a release.
func (d *etcdDriver) Break(ctx context.Context, h driver.Holder) error {
	return d.leave(ctx, member{h.Key, h.ID})
}
