package redlock

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/go-redsync/redsync/v4"
)

type opKind uint8

const (
	opAcquire opKind = iota
	opConfirm        // write the token back
	opRenew
	opRelease
	opJoin // take a held lock to a node that lacks it
)

// op is one operation on all nodes. redsync sends it to all of them at the same time,
// counts the majority, judges whether that came in time, and cleans up after an attempt
// that failed. The pools of its mutex are made for the operation: they are the nodes'
// parts in it, which send our scripts, in the order of the claim's commands on a node.
type op struct {
	d     *quorumDriver
	kind  opKind
	hold  *hold
	mutex *redsync.Mutex
	ctx   *bound.Context // of the commands
	leave func()         // gives up those that have no answer
	stay  func() bool    // has them go on when the caller leaves

	wide  chan struct{} // closed when an attempt asks the spare nodes, too; or is over
	widen func()        // closes it
	hedge *time.Timer   // widens when it fires
	start time.Time
	until time.Time   // when the last try is to begin
	tired *time.Timer // leaves nodes that are too slow for a vote

	mu    sync.Mutex
	over  bool // for the caller; nodes that have yet to answer go on
	first int  // nodes that are asked first, and have yet to answer
	left  int  // parts that are not through
	parts []part
}

// part is one node's part in an operation. To redsync it is a pool of connections, and a
// connection.
type part struct {
	o      *op
	i      int
	spare  bool // not asked at first
	answer answer
}

// newOp makes an operation. It ends when a majority has answered, or with the caller's
// context; the other nodes have their time from then on, too.
func (d *quorumDriver) newOp(ctx context.Context, kind opKind, h *hold) *op {
	caller, closed, _ := driver.Ends(ctx)
	commands, leave := context.WithCancel(context.WithoutCancel(caller))
	stay := func() bool { return true }
	if caller.Done() != nil {
		stay = context.AfterFunc(caller, leave)
	}
	most := d.nodeTimeout(h.req.TTL)
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end))
	}
	o := &op{d: d, kind: kind, hold: h, start: time.Now(), leave: leave, stay: stay, ctx: bound.New(commands, most, closed), left: len(d.nodes), parts: make([]part, len(d.nodes))}
	for i := range o.parts {
		o.parts[i] = part{o: o, i: i}
	}
	if kind == opAcquire {
		o.choose()
	}
	o.mutex = o.newMutex()
	return o
}

// hedgeAfter is how long the nodes that are asked first have to answer, which is more than
// they need when all is well.
const hedgeAfter = 5 * time.Millisecond

// choose picks the majority that an attempt asks first. It is the same for all that want the key,
// if they know the nodes in the same order. The others are asked if these do not agree, or
// not in time; decision 0014 has what that buys.
func (o *op) choose() {
	d, all := o.d, len(o.parts)
	start := firstNode(o.hold.req.Key, all)
	for j := range all {
		p := &o.parts[(start+j)%all]
		n := d.nodes[p.i]
		switch skipped := d.skip(n, opAcquire) != nil; {
		case skipped, d.majority(o.first) && !n.troubled.Load(): // one that was in trouble is to show that it is not
			p.spare = true
			n.lookIfQuiet()
		default:
			o.first++
		}
	}
	o.wide = make(chan struct{})
	o.widen = sync.OnceFunc(func() { close(o.wide) })
	o.hedge = time.AfterFunc(hedgeAfter, o.widen)
	if !d.majority(o.first) {
		o.widen()
	}
}

// firstNode returns the first node of the majority that is asked first.
func firstNode(key string, nodes int) int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key))
	return int(sum.Sum32() % uint32(nodes))
}

// next acts on an answer to an attempt: it asks the spare nodes, or,
// if the vote is split without those that have not answered, limits their time:
// one of them may hang.
func (o *op) next(a answer, all bool) {
	said := o.tally()
	agree := o.d.majority(said.yes) || o.d.majority(said.most)
	if a.state == failed || all && !agree {
		o.widen()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	more := o.d.nodeTimeout(o.hold.req.TTL)/32 + 3*time.Since(o.start)
	if o.d.majority(said.yes+said.no) && !agree && o.tired == nil && !o.over && time.Now().Add(more).Before(o.until) {
		o.tired = time.AfterFunc(more, o.leave)
	}
}

// finish ends the operation for its caller. From now on each answer may leave something to
// be done.
func (o *op) finish() {
	o.stay()
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	if o.hedge != nil {
		o.hedge.Stop()
		o.widen()
	}
	if o.tired != nil {
		o.tired.Stop()
	}
	o.hold.settle()
}

// answers returns the answers that have come so far.
func (o *op) answers() []answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]answer, len(o.parts))
	for i := range o.parts {
		all[i] = o.parts[i].answer
	}
	return all
}

// do sends the part of a node.
func (p *part) do() (bool, error) {
	o := p.o
	if o.d.enter() {
		defer o.d.leave()
	}
	defer o.through()
	if p.spare {
		<-o.wide
		if o.isOver() {
			return false, errNotAsked
		}
	}
	a := o.hold.do(o.ctx, p.i, o.kind)
	o.mu.Lock()
	p.answer = a
	if !p.spare {
		o.first--
	}
	over, all := o.over, o.first == 0
	o.mu.Unlock()
	switch {
	case over:
		o.hold.settle()
	case o.kind == opAcquire:
		o.next(a, all)
		if said := o.tally(); a.state == no && said.most < said.no {
			return false, errNotOne // redsync would take it for one holder's
		}
	}
	return a.state == yes, a.err
}

// through is called for each part. The last one ends the context of their commands.
func (o *op) through() {
	o.mu.Lock()
	o.left--
	last := o.left == 0
	o.mu.Unlock()
	if last {
		o.ctx.Stop()
	}
}

func (o *op) isOver() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// cleanUp sends the part of a node when redsync cleans up after an attempt. It waits for
// nodes that are known to have granted it, so that the next attempt does not meet our own
// keys. The rest is the hold's affair, which knows what may yet arrive.
func (p *part) cleanUp() (bool, error) {
	o := p.o
	if o.d.enter() {
		defer o.d.leave()
	}
	o.mu.Lock()
	granted := p.answer.state == yes
	o.mu.Unlock()
	if !granted {
		return false, errNotGranted
	}
	a := o.hold.do(bound.New(context.WithoutCancel(o.ctx), o.d.nodeTimeout(o.hold.req.TTL), nil), p.i, opRelease)
	o.hold.settle()
	return a.state == yes, a.err
}

// skip returns why node i is sent nothing, or nil. A renewal needs a majority that has the claim: if too few of these nodes
// are up, all of them are asked.
func (h *hold) skip(i int, kind opKind) error {
	err := h.d.skip(h.d.nodes[i], kind)
	if err == nil || kind != opRenew && kind != opConfirm {
		return err
	}
	up := 0
	for j, n := range h.d.nodes {
		if h.mayHave(j) && !n.isDown() {
			up++
		}
	}
	if !h.d.majority(up) {
		return nil
	}
	return err
}

// command sends what the operation is to node i.
func (h *hold) command(ctx context.Context, i int, kind opKind) answer {
	n, c := h.d.nodes[i], h.req.Claim
	if err := h.skip(i, kind); err != nil {
		return answer{state: failed, err: err}
	}
	return n.call(ctx, kind, func() answer {
		if err := n.ready(ctx); err != nil {
			return answer{state: failed, err: err}
		}
		switch kind {
		case opAcquire:
			return tried(n.Acquire(ctx, h.req))
		case opConfirm:
			c.Token = h.token
			return verdict(n.Run(ctx, confirmScript, c, h.lastToken()))
		case opRenew:
			c.Token = h.token
			return verdict(n.Run(ctx, renewScript, c))
		case opJoin:
			c.Token = h.token
			return verdict(n.Run(ctx, joinScript, c, max(h.remaining().Milliseconds(), 1), h.lastToken()))
		}
		a := verdict(n.Run(ctx, releaseScript, c))
		a.expired = a.state == no && h.remaining() <= 0
		return a
	})
}
