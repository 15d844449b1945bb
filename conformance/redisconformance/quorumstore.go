package redisconformance

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/conformance"
)

// The store of a [Quorum]: what a majority of its servers says, and what happens to all
// of them.

// moment is how long what a majority has decided may take to reach the others.
const moment = 500 * time.Millisecond

// Inspector.

// Keys implements [conformance.Inspector]. A command is over when a majority has
// answered it; what is left on a minority only is given a moment to go, too.
func (h *quorumHarness) Keys(ctx context.Context) ([]conformance.StoredKey, error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // a server reports no event
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

// settle polls, for a moment, until all servers agree on the holder of key: a Lock is over
// when a majority has granted it, and what happens to the lock is to happen to all of
// it.
func (h *quorumHarness) settle(ctx context.Context, key string) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) { // a server reports no event
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
