package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// A grant is a majority's, and so is a release that Unlock waits for. A hold tends to the
// rest, as long as there is something to do, with a timer and back-off: while it is held
// it is taken to the nodes that lack it (they were too slow, refused because another
// contender was there, were away, or came back empty), and once it is closed it is
// released where its key may be: two nodes that missed the releases of two holders would
// keep all others out.

const (
	firstPause    = 10 * time.Millisecond
	mostPause     = time.Second
	releaseBudget = 5 * time.Second // or the TTL, if that is less
)

// settle begins to tend if something is left to do. It is called after each operation, and
// each answer that comes after one.
func (h *hold) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, nodes := h.undone(); h.tending || len(nodes) == 0 {
		return
	}
	h.tending, h.pause = true, firstPause
	first := h.pause
	if h.phase == closing {
		first = 0
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(first, h.tend)
		return
	}
	h.timer.Reset(first)
}

// hurry begins the back-off anew. It needs h.mu.
func (h *hold) hurry() {
	h.pause = firstPause
	if h.tending && h.timer.Stop() {
		h.timer.Reset(h.pause)
	}
}

// undone says what is to be done, and on which nodes. It needs h.mu.
func (h *hold) undone() (kind opKind, nodes []int) {
	for i := range h.nodes {
		hn := &h.nodes[i]
		switch {
		case hn.busy: // its answer comes first
		case h.phase == held && !hn.placed:
			kind, nodes = opJoin, append(nodes, i)
		case h.phase == closing && hn.touched:
			kind, nodes = opRelease, append(nodes, i)
		}
	}
	return kind, nodes
}

func (h *hold) tend() {
	h.mu.Lock()
	kind, nodes := h.undone()
	end := h.until
	if h.phase == closing {
		end = h.giveUp
	}
	h.tending = len(nodes) > 0 && time.Now().Before(end)
	tending := h.tending
	h.mu.Unlock()
	switch {
	case tending:
		h.d.background(func(ctx context.Context) { h.round(ctx, kind, nodes) })
	case kind == opRelease:
		for _, i := range nodes {
			h.d.nodes[i].missedRelease(h.req.Key)
		}
	}
}

func (h *hold) round(ctx context.Context, kind opKind, nodes []int) {
	nodes = slices.DeleteFunc(nodes, func(i int) bool { return h.d.nodes[i].usable() != nil })
	var all sync.WaitGroup
	for _, i := range nodes {
		all.Go(func() { h.do(bound.New(ctx, h.d.nodeTimeout(h.req.TTL), nil), i, kind) })
	}
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Reset(h.pause)
	h.pause = min(2*h.pause, mostPause)
}

// remaining is what is left of the lease.
func (h *hold) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.until)
}
