package redisconformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// NewQuorum is the constructor of a strategy on several independent Redis servers.
type NewQuorum = func([]redis.UniversalClient, ...locker.Option) (locker.Locker, error)

// Quorum is a strategy on several independent Redis servers, a majority of which
// decides. Fencing and wake-ups are taken to be claimed.
type Quorum struct {
	Name  string
	New   NewQuorum
	Nodes int // servers; default 5

	// Dead of the servers are down all the time, and BlackHoled others swallow
	// what is sent to them.
	Dead, BlackHoled int

	// Direct lets the Lockers reach the servers without proxies (but for those that
	// are black-holed). That saves time and memory, and rules out the cases that need
	// faults.
	Direct bool

	// Op says which kind of command a Redis command is, "" for none. Default:
	// the scripts of this module's strategies.
	Op func(cmd []string) conformance.Op

	// Timing of the cases; zero fields mean the defaults.
	Timing conformance.Timing
}

// Harness is the strategy's [conformance.HarnessMaker]: servers of its own, and a
// proxy between each of them and the Lockers. What happens to the store happens to
// all servers that are up, what there is in it is what a majority says, and what a
// fault does to the next command it does to the next one at each of them.
func (q Quorum) Harness(tb testing.TB) conformance.Harness {
	tb.Helper()
	if q.Nodes == 0 {
		q.Nodes = 5
	}
	h := &quorumHarness{Quorum: q}
	for i := range q.Nodes {
		n := Strategy{Name: q.Name, Op: q.Op}.Harness(tb).(*harness)
		h.all = append(h.all, n)
		switch {
		case i < q.Dead:
			n.nodes[0].Kill()
		case i < q.Dead+q.BlackHoled:
			h.holes = append(h.holes, n)
		default:
			h.up = append(h.up, n)
		}
	}
	require.NoError(tb, h.Heal())
	return h
}

type quorumHarness struct {
	Quorum
	all   []*harness // one for each server
	holes []*harness
	up    []*harness
}

var _ interface {
	conformance.Harness
	conformance.Constructor
	conformance.Inspector
	conformance.Breaker
	conformance.Planter
	conformance.Faults
	conformance.ChildMaker
	conformance.Background
} = (*quorumHarness)(nil)

func (h *quorumHarness) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	var rdbs []redis.UniversalClient
	for _, n := range h.all {
		addr := n.nodes[0].Addr()
		if !h.Direct || slices.Contains(h.holes, n) {
			addr = n.proxies[addr].Addr()
		}
		// Small buffers: there are many connections, and memory is watched.
		rdb := redis.NewClient(&redis.Options{Addr: addr, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10})
		tb.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	l, err := h.Quorum.New(rdbs, opts...)
	require.NoError(tb, err)
	return l
}

func (h *quorumHarness) New(opts ...locker.Option) (locker.Locker, error) {
	var rdbs []redis.UniversalClient
	for _, n := range h.all {
		rdbs = append(rdbs, n.direct)
	}
	return h.Quorum.New(rdbs, opts...)
}

func (h *quorumHarness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{
		Name:      h.Name,
		Fencing:   true,
		Notified:  true,
		Quorum:    true,
		Construct: true,
		Inspect:   true,
		Break:     true,
		Plant:     true,
		Faults:    !h.Direct,
		Scripts:   !h.Direct,
		Processes: true,
	}
}

func (h *quorumHarness) Timing() conformance.Timing { return h.Quorum.Timing }

func (h *quorumHarness) NewChild(tb testing.TB) *conformance.Child {
	var specs []string
	for _, n := range h.all {
		specs = append(specs, n.spec())
	}
	return conformance.StartChild(tb, strings.Join(specs, ","))
}

// MainQuorum is [Main] for a strategy on several servers.
func MainQuorum(m *testing.M, newLocker NewQuorum) {
	conformance.Main(m, func(specs string, opts ...locker.Option) (locker.Locker, error) {
		var rdbs []redis.UniversalClient
		for spec := range strings.SplitSeq(specs, ",") {
			rdb, err := connect(spec)
			if err != nil {
				return nil, err
			}
			rdbs = append(rdbs, rdb)
		}
		return newLocker(rdbs, opts...)
	})
}

func (h *quorumHarness) Background(stack string) bool { return h.all[0].Background(stack) }

// each runs f for each server that is up, at the same time.
func (h *quorumHarness) each(f func(n *harness) error) error {
	errs := make([]error, len(h.up))
	var wg sync.WaitGroup
	for i, n := range h.up {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (h *quorumHarness) majority() int { return h.Nodes/2 + 1 }

// moment is how long what a majority has decided may take to reach the others.
const moment = 500 * time.Millisecond

// Inspector.

// Keys implements [conformance.Inspector]. A command is over when a majority has
// answered it; what is left on a minority only is given a moment to go, too.
func (h *quorumHarness) Keys(ctx context.Context) ([]conformance.StoredKey, error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		keys, settled, err := h.keys(ctx)
		if err != nil || settled || time.Since(start) > moment {
			return keys, err
		}
	}
}

func (h *quorumHarness) keys(ctx context.Context) (keys []conformance.StoredKey, settled bool, err error) {
	var mu sync.Mutex
	var all []conformance.StoredKey
	err = h.each(func(n *harness) error {
		keys, err := n.Keys(ctx)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	})
	slices.SortFunc(all, func(a, b conformance.StoredKey) int { return strings.Compare(a.Name, b.Name) })
	settled = true
	for len(all) > 0 {
		k := all[0]
		n := 0
		for ; n < len(all) && all[n].Name == k.Name; n++ {
			k.TTL = time.Duration(max(endless(k.TTL), endless(all[n].TTL)))
		}
		keys = append(keys, finite(k))
		settled = settled && n >= h.majority()
		all = all[n:]
	}
	return keys, settled, err
}

// endless makes "never expires" comparable.
func endless(ttl time.Duration) int64 {
	if ttl < 0 {
		return math.MaxInt64
	}
	return int64(ttl)
}

func finite(k conformance.StoredKey) conformance.StoredKey {
	if k.TTL == math.MaxInt64 {
		k.TTL = -1
	}
	return k
}

// Holder implements [conformance.Inspector]: whom a majority names.
func (h *quorumHarness) Holder(ctx context.Context, key string) (string, error) {
	var mu sync.Mutex
	votes := make(map[string]int)
	err := h.each(func(n *harness) error {
		holder, err := n.Holder(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		votes[holder]++
		return err
	})
	for holder, n := range votes {
		if n >= h.majority() {
			return holder, err
		}
	}
	return "", err
}

// TTL implements [conformance.Inspector]: how long a majority will have the key.
func (h *quorumHarness) TTL(ctx context.Context, key string) (time.Duration, error) {
	var mu sync.Mutex
	var ttls []int64
	err := h.each(func(n *harness) error {
		ttl, err := n.TTL(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		ttls = append(ttls, endless(ttl))
		return err
	})
	if err != nil || len(ttls) < h.majority() {
		return 0, err
	}
	slices.Sort(ttls)
	return finite(conformance.StoredKey{TTL: time.Duration(ttls[len(ttls)-h.majority()])}).TTL, nil
}

// Breaker.

// settle waits a moment for all servers to agree on who holds key: a Lock is over
// when a majority has granted it, and what happens to the lock is to happen to all of
// it.
func (h *quorumHarness) settle(ctx context.Context, key string) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		var mu sync.Mutex
		holders := make(map[string]bool)
		err := h.each(func(n *harness) error {
			holder, err := n.Holder(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			holders[holder] = true
			return err
		})
		if err != nil || len(holders) == 1 || time.Since(start) > moment {
			return err
		}
	}
}

func (h *quorumHarness) broken(ctx context.Context, key string, f func(n *harness) error) error {
	if err := h.settle(ctx, key); err != nil {
		return err
	}
	return h.each(f)
}

func (h *quorumHarness) Break(ctx context.Context, key string) error {
	return h.broken(ctx, key, func(n *harness) error { return n.Break(ctx, key) })
}

func (h *quorumHarness) Expire(ctx context.Context, key string) error {
	return h.broken(ctx, key, func(n *harness) error { return n.Expire(ctx, key) })
}

func (h *quorumHarness) Steal(ctx context.Context, key string) error {
	return h.broken(ctx, key, func(n *harness) error { return n.Steal(ctx, key) })
}

func (h *quorumHarness) Flush(ctx context.Context) error {
	return h.each(func(n *harness) error { return n.Flush(ctx) })
}

// Planter.

func (h *quorumHarness) Foreigners() []conformance.Foreigner { return h.all[0].Foreigners() }

func (h *quorumHarness) Plant(ctx context.Context, key, foreigner string) error {
	return h.each(func(n *harness) error { return n.Plant(ctx, key, foreigner) })
}

func (h *quorumHarness) Intact(ctx context.Context, key, foreigner string) (bool, error) {
	var mu sync.Mutex
	intact := true
	err := h.each(func(n *harness) error {
		ok, err := n.Intact(ctx, key, foreigner)
		mu.Lock()
		defer mu.Unlock()
		intact = intact && ok
		return err
	})
	return intact, err
}

// Faults.

func (h *quorumHarness) LoseReply(op conformance.Op) error {
	return h.each(func(n *harness) error { return n.LoseReply(op) })
}

func (h *quorumHarness) Repeat(op conformance.Op) error {
	return h.each(func(n *harness) error { return n.Repeat(op) })
}

func (h *quorumHarness) DelayReply(op conformance.Op, d time.Duration) error {
	return h.each(func(n *harness) error { return n.DelayReply(op, d) })
}

func (h *quorumHarness) Refuse() error { return h.each((*harness).Refuse) }

func (h *quorumHarness) BlackHole() error { return h.each((*harness).BlackHole) }

// Heal undoes what the above did, not what the harness began with.
func (h *quorumHarness) Heal() error {
	errs := []error{h.each((*harness).Heal)}
	for _, n := range h.holes {
		errs = append(errs, n.BlackHole())
	}
	return errors.Join(errs...)
}

func (h *quorumHarness) CutNotifications() error { return h.each((*harness).CutNotifications) }

func (h *quorumHarness) ForgetScripts() error { return h.each((*harness).ForgetScripts) }
