package etcdlike

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrLeaseNotFound says that the lease was revoked or has expired.
var ErrLeaseNotFound = errors.New("lease not found")

// LeaseID names a lease; 0 is none.
type LeaseID int64

// KV is a key, its value, the revision that created it and the lease it ends with.
type KV struct {
	Key, Value     string
	CreateRevision int64
	Lease          LeaseID
}

// Event is a change of a key: KV was put, or was deleted.
type Event struct {
	Deleted bool
	KV      KV
}

// Cmp is a condition of a transaction. A key that does not exist is a zero KV.
type Cmp struct {
	key   string
	holds func(KV) bool
}

// CreatedAt holds if key was created by that revision; for 0, if there is no key.
func CreatedAt(key string, revision int64) Cmp {
	return Cmp{key, func(kv KV) bool { return kv.CreateRevision == revision }}
}

// ValueIs holds if there is a key with that value.
func ValueIs(key, value string) Cmp {
	return Cmp{key, func(kv KV) bool { return kv.CreateRevision != 0 && kv.Value == value }}
}

// Op is a step of a transaction: Get, Put or Delete.
type Op struct {
	put, del bool
	kv       KV
}

// Get reads key.
func Get(key string) Op { return Op{kv: KV{Key: key}} }

// Delete deletes key, if it exists.
func Delete(key string) Op { return Op{del: true, kv: KV{Key: key}} }

// Put writes key, which ends with the lease unless that is 0.
func Put(key, value string, lease LeaseID) Op {
	return Op{put: true, kv: KV{Key: key, Value: value, Lease: lease}}
}

// Result is the outcome of a transaction.
type Result struct {
	Succeeded bool  // the conditions held
	Revision  int64 // the store's, after the transaction
	KVs       []KV  // what the Gets found
}

// Store is a model of etcd, in memory. Its methods may be called by many goroutines.
type Store struct {
	mu       sync.Mutex
	revision int64 // grows with each change
	kvs      map[string]KV
	leases   map[LeaseID]*lease
	granted  LeaseID               // the last one
	watches  map[chan Event]string // the key that each is about
}

type lease struct {
	ttl     time.Duration
	expires time.Time
	timer   *time.Timer
}

// New makes an empty store.
func New() *Store {
	return &Store{
		kvs:     make(map[string]KV),
		leases:  make(map[LeaseID]*lease),
		watches: make(map[chan Event]string),
	}
}

// Grant makes a lease that lasts so many seconds.
func (s *Store) Grant(ctx context.Context, seconds int64) (LeaseID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	s.granted++
	id, ttl := s.granted, time.Duration(seconds)*time.Second
	expire := func() { _ = s.Revoke(context.Background(), id) }
	s.leases[id] = &lease{ttl, time.Now().Add(ttl), time.AfterFunc(ttl, expire)}
	return id, nil
}

// KeepAlive makes a lease last its whole TTL from now.
func (s *Store) KeepAlive(ctx context.Context, id LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l := s.leases[id]
	if l == nil || !l.timer.Stop() { // not stopped: expire is about to run
		return ErrLeaseNotFound
	}
	l.expires = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

// Revoke ends a lease and deletes its keys, as its expiry does.
func (s *Store) Revoke(ctx context.Context, id LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l := s.leases[id]
	if l == nil {
		return ErrLeaseNotFound
	}
	l.timer.Stop()
	delete(s.leases, id)
	s.revision++
	for key, kv := range s.kvs {
		if kv.Lease == id {
			s.delete(key)
		}
	}
	return nil
}

// Txn does the steps of then if all conditions hold, else those of els, as one
// revision; or none of them, if it fails.
func (s *Store) Txn(ctx context.Context, ifs []Cmp, then, els []Op) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	res, ops := Result{Succeeded: true, Revision: s.revision}, then
	for _, c := range ifs {
		if !c.holds(s.kvs[c.key]) {
			res.Succeeded, ops = false, els
		}
	}
	for _, op := range ops {
		if op.put && op.kv.Lease != 0 && s.leases[op.kv.Lease] == nil {
			return Result{}, ErrLeaseNotFound
		}
		if op.put || op.del {
			res.Revision = s.revision + 1
		}
	}
	s.revision = res.Revision
	for _, op := range ops {
		kv, exists := s.kvs[op.kv.Key]
		switch {
		case op.put:
			op.kv.CreateRevision = s.revision
			if exists {
				op.kv.CreateRevision = kv.CreateRevision
			}
			s.kvs[op.kv.Key] = op.kv
			s.tell(Event{KV: op.kv})
		case op.del:
			s.delete(op.kv.Key)
		case exists:
			res.KVs = append(res.KVs, kv)
		}
	}
	return res, nil
}

// Watch returns a channel of the changes to key from now on. It is closed when ctx
// is done, or when the receiver has fallen too far behind.
func (s *Store) Watch(ctx context.Context, key string) <-chan Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan Event, 16)
	s.watches[c] = key
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(c)
	})
	return c
}

// Dump returns all keys, and all leases with their ends, for tests.
func (s *Store) Dump() (kvs []KV, leases map[LeaseID]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases = make(map[LeaseID]time.Time)
	for id, l := range s.leases {
		leases[id] = l.expires
	}
	return slices.Collect(maps.Values(s.kvs)), leases
}

func (s *Store) delete(key string) {
	if kv, ok := s.kvs[key]; ok {
		delete(s.kvs, key)
		s.tell(Event{Deleted: true, KV: kv})
	}
}

func (s *Store) tell(e Event) {
	for c, key := range s.watches {
		if key != e.KV.Key {
			continue
		}
		select {
		case c <- e:
		default:
			s.unwatch(c)
		}
	}
}

func (s *Store) unwatch(c chan Event) {
	if _, ok := s.watches[c]; ok {
		delete(s.watches, c)
		close(c)
	}
}
