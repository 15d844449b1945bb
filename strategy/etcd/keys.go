package etcd

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// root begins all keys.
	root = "locker/"
	// tokensKey has the time that tokens began with. No member has this name: each has a NUL.
	tokensKey = root + "tokens"
)

// member is a claim that holds a key or waits for it. Its name is the key, in which NUL is
// NUL 0xFF, then NUL 1 and the id. UTF-8 has no 0xFF, so that the members of a key are a range with no
// other key's in it.
type member struct{ key, id string }

func (m member) name() string {
	start, _ := rangeOf(m.key)
	return start + m.id
}

func rangeOf(key string) (start, end string) {
	begin := root + strings.ReplaceAll(key, "\x00", "\x00\xff") + "\x00"
	return begin + "\x01", begin + "\x02"
}

// memberOf inverts name; ok is false for what is no member.
func memberOf(name string) (m member, ok bool) {
	escaped, id, ok := strings.Cut(strings.TrimPrefix(name, root), "\x00\x01")
	return member{strings.ReplaceAll(escaped, "\x00\xff", "\x00"), id}, ok
}

// first reads the holder.
func first(key string) clientv3.Op { return all(key, clientv3.WithLimit(1)) }

// all reads the members in their order.
func all(key string, opts ...clientv3.OpOption) clientv3.Op {
	start, end := rangeOf(key)
	return clientv3.OpGet(start, append(opts, clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))...)
}

// holder reads what a claim holds by: the first member of a lock's line. Permits are held as long as their
// member is there.
func holder(m member, limit int) clientv3.Op {
	if limit > 0 {
		return clientv3.OpGet(m.name())
	}
	return first(m.key)
}

// kv returns the first that a read has found, or nil.
func kv(op *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := op.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
