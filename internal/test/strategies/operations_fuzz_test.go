package strategies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// FuzzOperations makes operations of two processes out of bytes, and compares what
// each strategy says with what a model of a re-entrant lock does.
func FuzzOperations(f *testing.F) {
	for _, s := range []string{
		"",
		"\x00\x00\x01\x00", // lock, unlock
		"\x00\x00\x00\x01\x02\x00\x01\x00\x01\x00",                 // the other is excluded; a second Unlock
		"\x00\x04\x00\x05\x00\x04\x01\x00\x01\x01\x01\x02",         // the same owner in both
		"\x00\x00\x00\x0c\x01\x00\x01\x01",                         // under a lease's context
		"\x00\x04\x03\x00\x00\x05\x02\x00\x01\x00\x01\x01\x00\x08", // broken under a named owner
		"\x00\x00\x03\x00\x00\x01\x01\x00\x00\x0c\x01\x01",
	} {
		f.Add([]byte(s))
	}
	srv := redistest.Start(f)
	rdb := srv.Client(f)
	stores := map[string]*store{
		"memory":        {open: func() (*locker.Client, error) { return inMemory.New() }},
		"setnx":         {open: func() (*locker.Client, error) { return setnx.New(rdb) }, rdb: rdb},
		"hashreentrant": {open: func() (*locker.Client, error) { return hashreentrant.New(rdb) }, rdb: rdb, shared: true},
		"blpop":         {open: func() (*locker.Client, error) { return blpop.New(rdb) }, rdb: rdb, shared: true},
	}
	for _, s := range stores {
		for i := range s.lockers {
			var err error
			s.lockers[i], err = s.open()
			require.NoError(f, err)
			f.Cleanup(func() { _ = s.lockers[i].Close() })
		}
	}
	n := 0
	f.Fuzz(func(t *testing.T, ops []byte) {
		n++
		for name, s := range stores {
			m := &model{T: t, store: s, name: name, keys: [2]string{fmt.Sprint("a", n), fmt.Sprint("b", n)}}
			m.run(ops[:min(len(ops), 200)])
		}
	})
}

var inMemory = memory.NewStore()

// store is a strategy with two Lockers on one store.
type store struct {
	open    func() (*locker.Client, error)
	rdb     redis.UniversalClient // nil: it cannot be broken
	shared  bool                  // hold counts are in the store: the same owner enters from the other Locker
	lockers [2]locker.Locker
}

// model knows who holds what, as the store should.
type model struct {
	*testing.T
	*store
	name   string
	keys   [2]string
	held   [2]*holding // by key; nil: free
	tokens [2]int64    // the last of each key
	all    []*view
	done   []string // what was done, for the report
}

// holding is one grant, with the leases on it.
type holding struct {
	owner  string // "": nobody else's
	token  int64
	leases []*view // not unlocked
	broken bool    // deleted behind the holder's back
}

// view is a lease and what the model knows of it.
type view struct {
	*locker.Lease
	h           *holding
	locker, key int
	unlocked    bool
}

func (m *model) run(ops []byte) {
	for ; len(ops) >= 2; ops = ops[2:] {
		arg := int(ops[1])
		switch ops[0] % 4 {
		case 0:
			m.lock(arg&1, arg>>1&1, arg>>2&3, arg>>4)
		case 1:
			m.on(arg, m.unlock)
		case 2:
			m.on(arg, m.renew)
		case 3:
			m.breakKey(arg & 1)
		}
	}
	for _, v := range m.all {
		if !v.unlocked {
			m.unlock(v)
		}
	}
	for i, key := range m.keys {
		lease, err := m.lockers[i].TryLock(context.Background(), key)
		m.check(err == nil, "%s is not free in the end: %v", key, err)
		m.check(lease.Token() > m.tokens[i], "token %d after %d", lease.Token(), m.tokens[i])
		m.check(lease.Unlock(context.Background()) == nil, "the last Unlock of %s", key)
		if m.rdb != nil {
			n, err := m.rdb.Exists(context.Background(), key).Result()
			m.check(err == nil && n == 0, "%s is left in the store: %v", key, err)
		}
	}
}

func (m *model) check(ok bool, format string, args ...any) {
	m.Helper()
	if !ok {
		m.Fatalf("%s: after %v: %s", m.name, m.done, fmt.Sprintf(format, args...))
	}
}

func (m *model) on(i int, f func(*view)) {
	if len(m.all) > 0 {
		f(m.all[i%len(m.all)])
	}
}

// lock tries to lock a key, by a caller who is nobody in particular, one of two by
// name, or somebody under the context of a lease.
func (m *model) lock(who, key, caller, under int) {
	ctx, owner := context.Background(), ""
	var carried *view
	switch caller {
	case 1, 2:
		owner = []string{"", "x", "y"}[caller]
		ctx = locker.ContextWithOwner(ctx, owner)
	case 3:
		if len(m.all) > 0 {
			carried = m.all[under%len(m.all)]
			ctx = context.WithoutCancel(carried.Context(ctx))
			if carried.locker != who || carried.key != key || carried.unlocked {
				carried = nil // it means nothing here
			}
		}
	}
	m.done = append(m.done, fmt.Sprintf("lock(%d, %d, %d, %d)", who, key, caller, under))
	lease, err := m.lockers[who].TryLock(ctx, m.keys[key], locker.WithTTL(time.Hour))
	h := m.held[key]

	// A Locker that does not know of its loss yet may go by what it remembers, and
	// one that does tells whoever depends on it.
	broken := m.brokenOf(who, key)
	if len(broken) > 0 && (errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost)) {
		return
	}
	for _, b := range broken {
		if err == nil && lease.Token() == b.token {
			m.add(lease, b, who, key)
			return
		}
	}
	m.check(carried == nil || !carried.h.broken || err != nil, "a fresh grant under a lease that is lost")
	joins := h != nil && (carried != nil && carried.h == h ||
		owner != "" && owner == h.owner && (m.shared || slices.ContainsFunc(h.leases, func(v *view) bool { return v.locker == who })))
	switch {
	case h == nil:
		m.check(err == nil, "a free key: %v", err)
		m.check(lease.Token() > m.tokens[key], "token %d after %d", lease.Token(), m.tokens[key])
		m.tokens[key] = lease.Token()
		m.held[key] = &holding{owner: owner, token: lease.Token()}
		m.add(lease, m.held[key], who, key)
	case joins:
		m.check(err == nil, "re-entry: %v", err)
		m.check(lease.Token() == h.token, "re-entry with token %d, not %d", lease.Token(), h.token)
		m.add(lease, h, who, key)
	default:
		m.check(errors.Is(err, locker.ErrNotAcquired), "a held key: %v", err)
	}
}

// brokenOf are the holdings of a Locker that it has not unlocked and may not know to
// be broken.
func (m *model) brokenOf(who, key int) (all []*holding) {
	for _, v := range m.all {
		if v.locker == who && v.key == key && v.h.broken && !v.unlocked {
			all = append(all, v.h)
		}
	}
	return all
}

func (m *model) add(lease *locker.Lease, h *holding, who, key int) {
	v := &view{Lease: lease, h: h, locker: who, key: key}
	m.all = append(m.all, v)
	h.leases = append(h.leases, v)
	m.check(lease.Holds() == m.holds(v), "Holds is %d, not %d", lease.Holds(), m.holds(v))
}

// holds counts those of the lease's Locker.
func (m *model) holds(v *view) int {
	n := 0
	for _, other := range v.h.leases {
		if other.locker == v.locker {
			n++
		}
	}
	return n
}

func (m *model) unlock(v *view) {
	m.done = append(m.done, fmt.Sprintf("unlock(%d)", slices.Index(m.all, v)))
	err := v.Unlock(context.Background())
	switch {
	case v.unlocked:
		m.check(errors.Is(err, locker.ErrNotHeld), "a second Unlock: %v", err)
		return
	case !v.h.broken:
		m.check(err == nil, "Unlock: %v", err)
	case m.holds(v) == 1 || m.shared:
		m.check(errors.Is(err, locker.ErrLost), "Unlock after a loss: %v", err)
	default:
		// An inner Unlock is the process's own affair.
		m.check(err == nil || errors.Is(err, locker.ErrLost), "an inner Unlock after a loss: %v", err)
	}
	v.unlocked = true
	h := v.h
	h.leases = slices.DeleteFunc(h.leases, func(o *view) bool { return o == v })
	if len(h.leases) == 0 && m.held[v.key] == h {
		m.held[v.key] = nil
	}
}

func (m *model) renew(v *view) {
	m.done = append(m.done, fmt.Sprintf("renew(%d)", slices.Index(m.all, v)))
	err := v.Renew(context.Background())
	switch {
	case v.unlocked:
		m.check(errors.Is(err, locker.ErrNotHeld), "Renew after Unlock: %v", err)
	case v.h.broken:
		m.check(errors.Is(err, locker.ErrLost), "Renew after a loss: %v", err)
	default:
		m.check(err == nil, "Renew: %v", err)
	}
}

// breakKey deletes a lock behind its holder's back.
func (m *model) breakKey(key int) {
	h := m.held[key]
	if h == nil || m.rdb == nil {
		return
	}
	m.done = append(m.done, fmt.Sprintf("break(%d)", key))
	m.check(m.rdb.Del(context.Background(), m.keys[key]).Err() == nil, "DEL")
	h.broken = true
	m.held[key] = nil
}
