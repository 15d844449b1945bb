package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
)

// hold is this process's knowledge of a claim on each node. Commands of one claim to one
// node go one after another, so that a release never overtakes the attempt it cleans up
// after, and only the release goes out once that began. tend.go repairs
// nodes that lack the claim.
type hold struct {
	d     *quorumDriver
	req   driver.Request
	token int64 // once it is known
	send  func(ctx context.Context, i int, kind opKind) answer

	mu      sync.Mutex
	phase   phase
	asked   time.Time // when the last renewal began
	until   time.Time // the end of the lease
	giveUp  time.Time // when closing: the end of the attempts to release it everywhere
	nodes   []holdNode
	tending bool          // the timer is set, or has gone off
	awaited bool          // Close waits for it
	pause   time.Duration // before the next try; 0: the first one, of a new back-off
	timer   *time.Timer
}

type phase uint8

const (
	trying  phase = iota // whether the claim has a majority is being asked
	held                 // its key belongs on every node
	closing              // on none: nothing is set any more
)

// holdNode is the knowledge of a claim's key on one node.
type holdNode struct {
	touched bool // it may be there, or get there
	was     bool // touched, before the command that is under way
	late    int  // commands that set it, were not answered, and may arrive late
	placed  bool // it is there, and not by one of them
	silent  bool // the node did not answer the last renewal, so that this is not certain
	freed   bool // it was there, and was released
	unsure  bool // a release was not answered: it may have freed the node
	// answered: the last release was, so that the key is there no more unless a late
	// command has set it.
	answered bool

	busy bool          // a command is under way
	free chan struct{} // closed when it is answered, if another waits for that
}

func (d *quorumDriver) newHold(req driver.Request) *hold {
	h := &hold{d: d, req: req, token: req.Token, until: time.Now().Add(req.TTL), nodes: make([]holdNode, len(d.nodes))}
	h.send = h.command
	return h
}

var errDoubt = &driver.StoreError{Err: errors.New("whether the claim has a majority is being asked"), NotApplied: true}

var errClosing = &driver.StoreError{Err: errors.New("the claim is being released"), NotApplied: true}

// do sends a command when it is node i's turn, unless it can have no effect.
func (h *hold) do(ctx context.Context, i int, kind opKind) answer {
	n := h.d.nodes[i]
	n.underWay.Add(1)
	defer n.underWay.Add(-1)
	if err := h.lockTurn(ctx, i); err != nil {
		return answer{state: failed, err: err}
	}
	defer h.mu.Unlock()
	a, known := h.before(i, kind)
	if known {
		return a
	}
	h.nodes[i].busy = true
	h.mu.Unlock()
	a = h.send(ctx, i, kind)
	h.mu.Lock()
	return h.after(i, kind, a)
}

// lockTurn locks h.mu when no command of the claim is on its way to node i, or fails.
func (h *hold) lockTurn(ctx context.Context, i int) error {
	hn := &h.nodes[i]
	h.mu.Lock()
	for hn.busy {
		if hn.free == nil {
			hn.free = make(chan struct{})
		}
		free := hn.free
		h.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
		h.mu.Lock()
	}
	return nil
}

// mayHave reports whether the claim's key may be on node i.
func (h *hold) mayHave(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[i].touched
}

// before returns the answer that is known without asking the node. It needs h.mu.
func (h *hold) before(i int, kind opKind) (a answer, known bool) {
	hn := &h.nodes[i]
	switch {
	case kind == opRelease && hn.freed:
		return answer{state: yes}, true
	case kind == opRelease && !hn.touched:
		return answer{state: no}, true
	case kind == opRelease:
	case h.phase == closing:
		return answer{state: failed, err: errClosing}, true
	case kind == opJoin && h.phase != held: // decided on before that was in doubt
		return answer{state: failed, err: errDoubt}, true
	case kind == opJoin && hn.placed && !hn.silent: // the timer went off twice before it was sent; the key may be gone by now
		return answer{state: yes}, true
	case kind == opAcquire || kind == opJoin:
		hn.was, hn.touched = hn.touched, true
	case !hn.touched:
		return answer{state: no}, true
	}
	return answer{}, false
}

// after notes an answer, ends the node's turn, and returns what the answer means. It needs h.mu.
//
// The release is sent by Unlock and by the hold itself. If the reply to one is lost, the next one
// may find nothing, or another claim. That is the work of the first, and no loss.
func (h *hold) after(i int, kind opKind, a answer) answer {
	hn := &h.nodes[i]
	hn.busy = false
	if hn.free != nil {
		close(hn.free)
		hn.free = nil
	}
	sets := kind == opAcquire || kind == opJoin
	switch {
	case sets && a.state == yes:
		hn.placed, h.pause = true, 0
	case a.state == yes && !hn.placed && hn.late > 0:
		hn.placed = true // none of the answered commands has set it: it is that of a late one
		hn.late--
	case sets && a.state == failed && mayBeApplied(a.err):
		hn.late++
	case a.state == no:
		hn.placed, hn.touched = false, hn.late > 0
	case sets && a.state == failed:
		hn.touched = hn.was // it has changed nothing
	}
	switch {
	case kind == opRelease:
		hn.answered = a.state != failed
	case a.state != failed:
		hn.silent = false
	case kind == opRenew:
		hn.silent = true
	}
	switch {
	case kind != opRelease:
	case a.state == failed:
		hn.unsure = hn.unsure || mayBeApplied(a.err)
	case a.state == yes, hn.unsure:
		hn.placed, hn.touched = false, hn.late > 0
		hn.freed = !hn.touched
		a.state = yes
	}
	return a
}

func mayBeApplied(err error) bool {
	var refined *driver.StoreError
	return !errors.As(err, &refined) || !refined.NotApplied
}

// grant notes that a majority has agreed to the claim, by a command sent at the time
// given. While a later renewal asks, the claim stays in doubt.
func (h *hold) grant(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != closing {
		if !sent.Before(h.asked) {
			h.phase = held
		}
		if until := sent.Add(h.req.TTL); until.After(h.until) { // the answer to an older renewal may come late
			h.until = until
		}
	}
}

// doubt notes that a majority is being asked: until it has agreed the key is taken nowhere,
// for all nodes may have lost it, and another holder may have come and gone. It returns the time, for grant.
func (h *hold) doubt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == held {
		h.phase = trying
	}
	h.asked = time.Now()
	return h.asked
}

// close forbids further commands that set a key. It reports whether the lease was in force.
func (h *hold) close() (inTime bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	inTime = time.Now().Before(h.until)
	if h.phase != closing {
		h.phase, h.giveUp = closing, time.Now().Add(min(releaseBudget, h.req.TTL))
		h.hurry()
	}
	return inTime
}

func (h *hold) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == closing
}

// count returns how many nodes had the key when they were last asked.
func (h *hold) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hn := range h.nodes {
		if hn.placed && !hn.silent {
			n++
		}
	}
	return n
}

// lastToken returns the last token that is reserved for the claim; 0 if it has none.
func (h *hold) lastToken() int64 {
	if h.token == 0 {
		return 0
	}
	return h.token + int64(max(h.req.Tokens-1, 0))
}

// holds are the claims of a Locker by their ids, from the grant to the end of the
// release. Those that are never released leave it some time after they expired.
type holds struct {
	mu    sync.Mutex
	byID  map[string]*hold
	sweep int // look for expired ones when there are as many
}

const minSweep = 64

func (hs *holds) add(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.byID) >= max(hs.sweep, minSweep) {
		for id, h := range hs.byID {
			if h.remaining() <= 0 {
				delete(hs.byID, id)
			}
		}
		hs.sweep = 2 * len(hs.byID)
	}
	hs.byID[h.req.ID] = h
}

// get returns nil for a claim that was released.
func (hs *holds) get(id string) *hold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.byID[id]
}

func (hs *holds) remove(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.byID, h.req.ID)
}
