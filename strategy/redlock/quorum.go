package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
)

// redsync sends each operation to all nodes at once and counts the answers. What
// it sends goes through our Pool and Conn, which find in the context what the
// operation really is, and send that instead: with a timeout and health of the
// node's own, in the order of the claim, and with scripts that know tokens.

type opKind int

const (
	opAcquire opKind = iota
	opConfirm        // write the token back
	opRenew
	opRelease
)

// op is one operation on all nodes.
type op struct {
	d     *driver
	ctx   context.Context // of the commands; redsync's ends with its own call
	kind  opKind
	hold  *hold
	req   locker.Request
	token int64

	mu      sync.Mutex
	answers []answer
}

type answer struct {
	state  state
	token  int64
	left   time.Duration
	silent bool
	err    error
}

type state int

const (
	unanswered state = iota
	yes
	no
	failed
)

type opKey struct{}

func (d *driver) newOp(ctx context.Context, kind opKind, h *hold, req locker.Request) *op {
	return &op{d: d, ctx: context.WithoutCancel(ctx), kind: kind, hold: h, req: req, answers: make([]answer, len(d.nodes))}
}

// in returns the context that carries the operation through redsync.
func (o *op) in(ctx context.Context) context.Context { return context.WithValue(ctx, opKey{}, o) }

func (o *op) record(i int, a answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers[i] = a
}

func (o *op) snapshot() []answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.answers)
}

// pool is a node to redsync.
type pool struct {
	d *driver
	i int
}

func (p pool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	o, ok := ctx.Value(opKey{}).(*op)
	if !ok {
		return nil, errors.New("redlock: not one of our operations")
	}
	return conn{o, p.i}, nil
}

// conn is one node's part in one operation.
type conn struct {
	o *op
	i int
}

var errUnused = errors.New("redlock: redsync does not call this")

func (conn) Get(string) (string, error)                          { return "", errUnused }
func (conn) Set(string, string) (bool, error)                    { return false, errUnused }
func (conn) ScriptLoad(*redsyncredis.Script) error               { return errUnused }
func (conn) PTTL(string) (time.Duration, error)                  { return 0, errUnused }
func (conn) Close() error                                        { return nil }
func (c conn) SetNX(string, string, time.Duration) (bool, error) { return c.do() }

func (c conn) Eval(*redsyncredis.Script, ...interface{}) (interface{}, error) {
	if c.o.kind == opAcquire {
		// redsync cleaning up after an attempt; we do, in order and for as long
		// as it takes.
		return int64(1), nil
	}
	ok, err := c.do()
	if ok {
		return int64(1), err
	}
	return int64(0), err
}

// do sends the operation to the node.
func (c conn) do() (bool, error) {
	o, n := c.o, c.o.d.nodes[c.i]
	a := answer{state: failed}
	switch a.err = o.d.skip(n); {
	case a.err != nil:
	default:
		ctx, cancel := context.WithTimeout(o.ctx, o.d.nodeTimeout(o.req.TTL))
		defer cancel()
		a = o.hold.do(ctx, c.i, o.kind, func() answer {
			a := o.send(ctx, n)
			n.heard(a.err)
			return a
		})
	}
	o.record(c.i, a)
	if o.kind == opRelease && a.err != nil {
		o.d.releaseLater(o.hold, c.i, o.req.Claim)
	}
	if a.err != nil {
		return false, fmt.Errorf("node %s: %w", n.name, a.err)
	}
	return a.state == yes, nil
}

// send sends it, the claim's turn on the node having come.
func (o *op) send(ctx context.Context, n *node) answer {
	if err := n.ready(ctx); err != nil {
		return answer{state: failed, err: err}
	}
	switch o.kind {
	case opAcquire:
		g, err := n.Acquire(ctx, o.req)
		a := answer{state: no, token: g.Token, left: g.Left, silent: g.Silent, err: err}
		switch {
		case err != nil:
			a.state = failed
		case g.Granted:
			a.state = yes
		}
		return a
	case opConfirm:
		c := o.req.Claim
		c.Token = o.token
		return verdict(n.Run(ctx, confirmScript, c, o.token))
	case opRenew:
		return verdict(n.Run(ctx, renewScript, o.req.Claim))
	}
	return verdict(n.Run(ctx, releaseScript, o.req.Claim))
}

func verdict(err error) answer {
	switch {
	case err == nil:
		return answer{state: yes}
	case errors.Is(err, locker.ErrLost):
		return answer{state: no}
	}
	return answer{state: failed, err: err}
}

// hold is what this process did with a claim on each node. Commands of one claim
// to one node go one after another, so that a release never overtakes the
// attempt it cleans up after, and none but the release goes out once that began.
type hold struct {
	nodes   []holdNode
	mu      sync.Mutex
	closing bool
}

type holdNode struct {
	turn    chan struct{} // holds one while a command is under way
	touched bool          // the key may be there; guarded by turn
	missing bool          // a renewal did not find it; guarded by hold.mu
}

func newHold(n int) *hold {
	h := &hold{nodes: make([]holdNode, n)}
	for i := range h.nodes {
		h.nodes[i].turn = make(chan struct{}, 1)
	}
	return h
}

var errClosing = errors.New("the claim is being released")

// do runs f when it is node i's turn.
func (h *hold) do(ctx context.Context, i int, kind opKind, f func() answer) answer {
	hn := &h.nodes[i]
	select {
	case hn.turn <- struct{}{}:
		defer func() { <-hn.turn }()
	case <-ctx.Done():
		return answer{state: failed, err: ctx.Err()}
	}
	switch kind {
	case opAcquire:
		if h.isClosing() {
			return answer{state: failed, err: errClosing}
		}
		hn.touched = true
	case opConfirm:
		if !hn.touched {
			return answer{state: no}
		}
	}
	a := f()
	switch kind {
	case opAcquire:
		var refined *locker.StoreError
		if a.state == no || errors.As(a.err, &refined) && refined.NotApplied {
			hn.touched = false
		}
	case opRenew:
		h.mu.Lock()
		hn.missing = a.state == no
		h.mu.Unlock()
	case opRelease:
		if a.err == nil {
			hn.touched = false
		}
	}
	return a
}

func (h *hold) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

func (h *hold) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing = true
}
