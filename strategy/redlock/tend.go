package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// A grant is a majority's, and so is a release that Unlock waits for. A hold tends to the
// rest, as long as there is something to do, with a timer and back-off: while it is held
// it is taken to the nodes that lack it (they were too slow, refused because another
// contender was there, did not answer a renewal, were away, or came back empty), and once it
// is closed it is released where its key may be: two nodes that missed the releases of two
// holders would keep all others out. After Close nothing is tended.

const (
	firstPause    = 10 * time.Millisecond
	mostPause     = time.Second
	releaseBudget = 5 * time.Second // or the TTL, if that is less
)

// settle begins to tend if something is left to do: at once, if it is the first release of a node. It is
// called after each operation, and each answer that comes after one. An answer that took longer than
// the pause begins no new back-off: a node that is far away is not asked more often than a near one.
func (h *hold) settle() {
	h.mu.Lock()
	if _, nodes := h.undone(); h.tending || len(nodes) == 0 {
		h.mu.Unlock()
		return
	}
	h.tending = true
	h.awaited = h.phase == closing && h.d.enter()
	if h.phase != closing || h.pause > 0 {
		h.wait()
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	h.tend()
}

// wait sets the timer. It needs h.mu.
func (h *hold) wait() {
	h.pause = max(h.pause, firstPause)
	if h.timer == nil {
		h.timer = time.AfterFunc(h.pause, h.tend)
		return
	}
	h.timer.Reset(h.pause)
}

// hurry begins the back-off anew. It needs h.mu.
func (h *hold) hurry() {
	h.pause = 0
	if h.tending && h.timer != nil && h.timer.Stop() {
		h.wait()
	}
}

// undone returns the next operation, and the nodes that need it. It needs h.mu.
func (h *hold) undone() (kind opKind, nodes []int) {
	for i := range h.nodes {
		hn := &h.nodes[i]
		switch {
		case hn.busy: // its answer comes first
		case h.phase == held && (!hn.placed || hn.silent):
			kind, nodes = opJoin, append(nodes, i)
		case h.phase == closing && hn.touched:
			kind, nodes = opRelease, append(nodes, i)
		}
	}
	return kind, nodes
}

// tend sends the operations that nodes need, and sets the timer for the next try.
func (h *hold) tend() {
	h.mu.Lock()
	kind, nodes := h.undone()
	end := h.until
	if h.phase == closing {
		end = h.giveUp
	}
	inTime := time.Now().Before(end)
	if h.tending = len(nodes) > 0 && inTime && !h.d.isClosed(); h.tending {
		h.wait()
		h.pause = min(2*h.pause, mostPause)
	} else if h.awaited {
		h.awaited = false
		defer h.d.leave()
	}
	missed := slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return h.nodes[i].answered })
	h.mu.Unlock()
	for _, i := range nodes {
		if n := h.d.nodes[i]; inTime && n.usable() == nil {
			h.d.background(func(ctx context.Context) {
				h.do(bound.New(ctx, h.d.nodeTimeout(h.req.TTL), nil), i, kind)
				h.settle()
			})
		}
	}
	if kind == opRelease && !inTime {
		for _, i := range missed {
			h.d.nodes[i].missedRelease(h.req.Key)
		}
	}
}

// remaining returns how long the lease still lasts.
func (h *hold) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.until)
}
