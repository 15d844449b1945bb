package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// poll asks all nodes at the same time, and returns what they said, or an error if no
// majority has answered.
func poll[A any](d *quorumDriver, ask func(n *node) (A, error)) ([]A, error) {
	answers, errs := make([]A, len(d.nodes)), make([]error, len(d.nodes))
	var all sync.WaitGroup
	for i, n := range d.nodes {
		all.Go(func() { answers[i], errs[i] = ask(n) })
	}
	all.Wait()
	var said []A
	var failed []error
	for i, err := range errs {
		if err == nil {
			said = append(said, answers[i])
		} else {
			failed = append(failed, fmt.Errorf("node %s: %w", d.nodes[i].name, err))
		}
	}
	if !d.majority(len(said)) {
		trouble := &nodesError{doing: fmt.Sprintf("%d of %d nodes answered, %d are needed", len(said), len(d.nodes), d.quorum), errs: failed}
		for _, err := range failed {
			trouble.conflict = trouble.conflict || errors.Is(err, locker.ErrConflict)
		}
		return nil, &driver.StoreError{Err: trouble}
	}
	return said, nil
}

// Inspect implements [driver.Inspector]. The holder is the one that a majority tells of.
// What a minority tells of is what is left of a lock, or an attempt that is under way.
func (d *quorumDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	holders, err := poll(d, func(n *node) (driver.Holder, error) { return n.Inspect(ctx, key) })
	if err != nil {
		return driver.Holder{}, err
	}
	waiting := 0
	byID := make(map[string][]driver.Holder)
	for _, h := range holders {
		waiting = max(waiting, h.Waiting)
		if h.Held {
			byID[h.ID] = append(byID[h.ID], h)
		}
	}
	h := driver.Holder{Key: key}
	for _, same := range byID {
		if !d.majority(len(same)) {
			continue
		}
		// It is held for as long as a majority has it.
		slices.SortFunc(same, func(a, b driver.Holder) int { return cmp.Compare(b.Remaining, a.Remaining) })
		h = same[d.quorum-1]
		for _, other := range same {
			h.Token = max(h.Token, other.Token)
		}
	}
	h.Waiting = waiting
	return h, nil
}

// Keys implements [driver.Inspector].
func (d *quorumDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lists, err := poll(d, func(n *node) (keys []string, err error) {
			for key, err := range n.Keys(ctx, pattern) {
				if err != nil {
					return nil, err
				}
				keys = append(keys, key)
			}
			return keys, nil
		})
		if err != nil {
			yield("", err)
			return
		}
		keys := slices.Concat(lists...)
		slices.SortFunc(keys, strings.Compare)
		for _, key := range slices.Compact(keys) {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Inspector]. A node that cannot be reached keeps the lock until
// its TTL ends, as a minority may.
func (d *quorumDriver) Break(ctx context.Context, h driver.Holder) error {
	freed, err := poll(d, func(n *node) (bool, error) {
		err := n.Break(ctx, h)
		if errors.Is(err, locker.ErrLost) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil && !slices.Contains(freed, true) {
		return fmt.Errorf("%w: no node has it", locker.ErrLost)
	}
	return err
}
