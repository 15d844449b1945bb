package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// hold is what this process did with a claim on each node. Commands of one claim
// to one node go one after another, so that a release never overtakes the
// attempt it cleans up after, and none but the release goes out once that began.
type hold struct {
	more  int64           // tokens that are reserved after the claim's
	turns []chan struct{} // by node; each holds one while a command is under way

	mu      sync.Mutex
	nodes   []holdNode
	closing bool      // being released: nothing is set any more
	until   time.Time // when the last of its keys expires
}

// holdNode is what is known of a claim's key on one node.
type holdNode struct {
	touched bool // it may be there, or get there
	late    int  // commands that set it, were not answered, and may arrive late
	placed  bool // it is there, and not by one of them
	freed   bool // it was there, and was released
	missing bool // a renewal did not find it
	later   bool // it is being released in the background

	knows int64 // the node's counter has reached the last token, if the claim's is this one
}

// newHold makes the hold of a claim with so many tokens, at least 1, on n nodes.
func newHold(n, tokens int) *hold {
	h := &hold{more: int64(max(tokens-1, 0)), turns: make([]chan struct{}, n), nodes: make([]holdNode, n)}
	for i := range h.turns {
		h.turns[i] = make(chan struct{}, 1)
	}
	return h
}

var errClosing = &driver.StoreError{Err: errors.New("the claim is being released"), NotApplied: true}

// do runs f when it is node i's turn, unless it is known to be of no use.
func (h *hold) do(ctx context.Context, i int, kind opKind, f func() answer) answer {
	select {
	case h.turns[i] <- struct{}{}:
		defer func() { <-h.turns[i] }()
	case <-ctx.Done():
		return answer{state: failed, err: ctx.Err()}
	}
	if a, known := h.before(i, kind); known {
		return a
	}
	a := f()
	h.after(i, kind, a)
	return a
}

func (h *hold) before(i int, kind opKind) (a answer, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hn := &h.nodes[i]
	switch kind {
	case opAcquire, opJoin:
		if h.closing {
			return answer{state: failed, err: errClosing}, true
		}
		hn.touched = true
	case opConfirm:
		if !hn.touched {
			return answer{state: no}, true
		}
	case opRelease:
		switch {
		case hn.freed:
			return answer{state: yes}, true
		case !hn.touched:
			return answer{state: no}, true
		}
	}
	return answer{}, false
}

func (h *hold) after(i int, kind opKind, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hn := &h.nodes[i]
	if a.state == yes || kind == opRelease && a.state == no {
		hn.knows = max(hn.knows, a.token)
	}
	if a.state == yes {
		// A key that none of the answered commands has set is that of a late one.
		switch {
		case kind == opAcquire || kind == opJoin:
			hn.placed = true
		case !hn.placed && hn.late > 0:
			hn.late--
			hn.placed = true
		}
	}
	switch kind {
	case opAcquire, opJoin:
		var refined *driver.StoreError
		switch {
		case a.state == failed && !(errors.As(a.err, &refined) && refined.NotApplied):
			hn.late++
		case a.state != yes && hn.late == 0:
			hn.touched = false
		}
	case opRenew:
		hn.missing = a.state == no
		hn.placed = hn.placed && a.state != no
	case opRelease:
		if a.state != failed { // it is not there now
			hn.placed, hn.touched = false, hn.late > 0
			hn.freed = a.state == yes && !hn.touched
		}
	}
}

func (h *hold) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
}

func (h *hold) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

// left says whether the key may still be on node i, or get there.
func (h *hold) left(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[i].touched
}

// last is the last token that is reserved for a claim with this one; 0 if it has none.
func (h *hold) last(token int64) int64 {
	if token == 0 {
		return 0
	}
	return token + h.more
}

// untold is the last token, to tell node i; 0 if it knows it.
func (h *hold) untold(i int, token int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes[i].knows >= token {
		return 0
	}
	return h.last(token)
}

// beginLater says whether to begin a release of node i in the background.
func (h *hold) beginLater(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	hn := &h.nodes[i]
	if hn.later || !hn.touched {
		return false
	}
	hn.later = true
	return true
}

func (h *hold) endLater(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[i].later = false
}

// beginJoin says whether a renewal found the key missing on node i, once.
func (h *hold) beginJoin(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	hn := &h.nodes[i]
	join := hn.missing && !h.closing
	hn.missing = false
	return join
}

// lasts notes that a command sent at the time given set the keys to ttl.
func (h *hold) lasts(sent time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = sent.Add(ttl)
}

func (h *hold) over(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.After(h.until)
}

// holds are the claims of a Locker by their ids, from the grant to the end of the
// release. Those that are never released leave it some time after they expired.
type holds struct {
	mu    sync.Mutex
	byID  map[string]*hold
	sweep int // look for expired ones when there are as many
}

const minSweep = 64

func (hs *holds) add(id string, h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.byID) >= max(hs.sweep, minSweep) {
		now := time.Now()
		for id, h := range hs.byID {
			if h.over(now) {
				delete(hs.byID, id)
			}
		}
		hs.sweep = 2 * len(hs.byID)
	}
	hs.byID[id] = h
}

// get returns nil for a claim that was released.
func (hs *holds) get(id string) *hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.byID[id]
}

func (hs *holds) remove(id string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.byID, id)
}
