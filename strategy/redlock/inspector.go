package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// poll asks all nodes at the same time, and returns what they said once that is enough, or
// all have answered; or an error if no majority has. A node that is known to be down is
// not asked.
func poll[A any](ctx context.Context, d *quorumDriver, enough func(said []A) bool, ask func(ctx context.Context, n *node) (A, error)) ([]A, error) {
	type reply struct {
		said A
		err  error
	}
	replies := make(chan reply, len(d.nodes))
	for _, n := range d.nodes {
		runs := d.background(func(life context.Context) {
			var r reply
			defer func() { replies <- r }()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			if r.err = d.skip(n, opRelease); r.err == nil {
				n.call(ctx, opRelease, func() answer {
					r.said, r.err = ask(ctx, n)
					if refined, ok := errors.AsType[*driver.StoreError](r.err); ok && refined.Permanent {
						return answer{state: no} // a refusal (NOPERM, say) is the answer of a node that is well
					}
					return verdict(r.err)
				})
			}
			if r.err != nil {
				r.err = fmt.Errorf("node %s: %w", n.name, r.err)
			}
		})
		if !runs {
			return nil, &driver.StoreError{Err: locker.ErrClosed, NotApplied: true}
		}
	}
	var said []A
	trouble := &nodesError{}
	for range d.nodes {
		r := <-replies
		if r.err != nil {
			trouble.errs = append(trouble.errs, r.err)
			trouble.conflict = trouble.conflict || errors.Is(r.err, locker.ErrConflict)
			continue
		}
		if said = append(said, r.said); d.majority(len(said)) && enough(said) {
			return said, nil
		}
	}
	if d.majority(len(said)) {
		return said, nil
	}
	trouble.doing = fmt.Sprintf("%d of %d nodes carried out the command, %d are needed", len(said), len(d.nodes), d.quorum)
	return nil, &driver.StoreError{Err: trouble}
}

// briefly bounds what one node may take.
func (d *quorumDriver) briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.nodeTimeout(locker.DefaultTTL))
}

// Inspect implements [driver.Inspector]. The holder is the one that a majority names, or
// may name together with the silent nodes. One that a minority names is the rest of a lock, or
// an attempt that is under way.
func (d *quorumDriver) Inspect(ctx context.Context, key string) (driver.Holder, error) {
	h, _, err := d.inspect(ctx, key, (*node).inspected)
	return h, err
}

// Ask implements [driver.Asker]: one round trip to all nodes. Each sends the request to the holder that it has. The
// holder listens at a majority, so it hears what a majority sends.
func (d *quorumDriver) Ask(ctx context.Context, key string) (h driver.Holder, asked bool, err error) {
	return d.inspect(ctx, key, (*node).requested)
}

// found has the holder that a node has.
type found struct {
	driver.Holder
	asked bool // the node has sent the request to the holder
}

func (n *node) inspected(ctx context.Context, key string) (f found, err error) {
	f.Holder, err = n.Inspect(ctx, key)
	return f, err
}

func (n *node) requested(ctx context.Context, key string) (f found, err error) {
	f.Holder, f.asked, err = n.Ask(ctx, key)
	return f, err
}

// inspect returns the holder, and whether a majority has asked it.
func (d *quorumDriver) inspect(ctx context.Context, key string, look func(*node, context.Context, string) (found, error)) (h driver.Holder, asked bool, err error) {
	said, err := poll(ctx, d, func(said []found) bool { return d.agreed(said) != nil }, func(ctx context.Context, n *node) (found, error) {
		ctx, cancel := d.briefly(ctx)
		defer cancel()
		return look(n, ctx, key)
	})
	if err != nil {
		return driver.Holder{}, false, err
	}
	h.Key = key
	same := d.agreed(said)
	if same == nil {
		same = d.perhaps(said)
	}
	if same != nil {
		// It is held for as long as a majority has it.
		slices.SortFunc(same, func(a, b found) int { return cmp.Compare(b.Remaining, a.Remaining) })
		h = same[min(d.quorum, len(same))-1].Holder
		n := 0
		for _, other := range same {
			h.Token = max(h.Token, other.Token)
			if other.asked {
				n++
			}
		}
		asked = d.majority(n)
	}
	for _, other := range said {
		h.Waiting = max(h.Waiting, other.Waiting)
	}
	return h, asked, nil
}

// agreed returns equal answers of a majority of the nodes; nil if there is no such majority.
func (d *quorumDriver) agreed(said []found) []found {
	for _, h := range said {
		same := slices.DeleteFunc(slices.Clone(said), func(other found) bool { return other.Held != h.Held || other.ID != h.ID })
		if d.majority(len(same)) {
			return same
		}
	}
	return nil
}

// perhaps returns the answers that name one holder, if these nodes may be a majority together with
// the nodes that have not answered.
func (d *quorumDriver) perhaps(said []found) []found {
	for _, h := range said {
		same := slices.DeleteFunc(slices.Clone(said), func(other found) bool { return other.ID != h.ID })
		if h.Held && d.majority(len(same)+len(d.nodes)-len(said)) {
			return same
		}
	}
	return nil
}

// Keys implements [driver.Inspector].
func (d *quorumDriver) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all := func(lists [][]string) bool { return len(lists) == len(d.nodes) }
		lists, err := poll(ctx, d, all, func(ctx context.Context, n *node) (keys []string, err error) {
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

// Break implements [driver.Inspector]. The lock was that claim's if a majority had it, or
// may have had it. A node that cannot be reached keeps it until its TTL ends, as a minority
// may.
//
// A renewal that meets a majority before the break does succeeds, and the holder brings the lock back to the
// nodes that have broken it. So Break asks until a majority has nothing to break: a round trip more, without such a renewal.
// A command of the holder that comes to a node after that was sent before the last round: it is late by more than a
// round trip.
//
// Sent twice, or after a lost reply, a node has nothing more to break. If a later round finds no majority, the first
// did break the lock, and Break returns nil.
func (d *quorumDriver) Break(ctx context.Context, h driver.Holder) error {
	found, err := d.breakParts(ctx, h)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: a majority of the nodes has it no more", locker.ErrLost)
	}
	for found && err == nil {
		if ctx.Err() != nil {
			return &driver.StoreError{Err: fmt.Errorf("the holder's renewals bring the lock back: %w", ctx.Err())}
		}
		found, err = d.breakParts(ctx, h)
	}
	return nil
}

// breakParts frees the key on each node where h holds it. It reports false when a majority of the nodes answers that h does not.
func (d *quorumDriver) breakParts(ctx context.Context, h driver.Holder) (bool, error) {
	count := func(freed []bool, what bool) (n int) {
		for _, f := range freed {
			if f == what {
				n++
			}
		}
		return n
	}
	decided := func(freed []bool) bool { return d.majority(count(freed, true)) || d.majority(count(freed, false)) }
	freed, err := poll(ctx, d, decided, func(ctx context.Context, n *node) (bool, error) {
		ctx, cancel := d.briefly(context.WithoutCancel(ctx)) // what is left when this returns goes on
		defer cancel()
		err := n.Break(ctx, h)
		if errors.Is(err, locker.ErrLost) {
			return false, nil
		}
		return err == nil, err
	})
	return !d.majority(count(freed, false)), err
}
