package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// redsync sends each operation to all nodes at once and counts the answers. Its
// commands go through our Pool and Conn, which find in the context what the
// operation really is, and send that instead: with a timeout and health of the
// node's own, in the order of the claim, and with scripts that know tokens.

type opKind int

const (
	opAcquire opKind = iota
	opConfirm        // write the token back
	opRenew
	opRelease
	opJoin // take a held claim to a node that lacks it; not through redsync
)

// op is one operation on all nodes.
type op struct {
	d     *quorumDriver
	ctx   context.Context // of the commands, for as long as a node may take; redsync's ends with its own call
	end   func()          // when all nodes are through
	kind  opKind
	hold  *hold
	req   driver.Request
	token int64 // of opConfirm

	ahead int         // the node that was asked before the others; -1: none
	early chan answer // its

	mu        sync.Mutex
	through   int // nodes
	answers   []answer
	confirmed bool // a majority said yes to a renewal
}

type answer struct {
	state     state
	token     int64
	remaining time.Duration
	noWakeUp  bool
	late      bool // it came after the end of the lease
	err       error
}

type state int

const (
	unanswered state = iota
	yes
	no
	failed
)

// patience is how long to wait for the node that is asked ahead.
func (d *quorumDriver) patience(ttl time.Duration) time.Duration {
	return min(d.nodeTimeout(ttl)/8, 50*time.Millisecond)
}

type opKey struct{}

// newOp makes an operation; before is what goes by until the nodes are asked.
func (d *quorumDriver) newOp(ctx context.Context, kind opKind, h *hold, req driver.Request, before time.Duration) *op {
	// The slower nodes are heard after the majority has ended the call, but not past
	// the time that the caller gives it.
	most := d.nodeTimeout(req.TTL) + before
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	leave := d.enter()
	end := func() {
		cancel()
		leave()
	}
	return &op{d: d, ctx: ctx, end: end, kind: kind, hold: h, req: req, ahead: -1, answers: make([]answer, len(d.nodes))}
}

// in returns the context that carries the operation through redsync.
func (o *op) in(ctx context.Context) context.Context { return context.WithValue(ctx, opKey{}, o) }

// round runs an operation of redsync, which waits for nodes whatever becomes of ctx.
// One that is left behind goes on for as long as a node may take.
func round(ctx context.Context, operation func() (bool, error)) (ok bool, err error) {
	type result struct {
		ok  bool
		err error
	}
	done := make(chan result, 1)
	go func() {
		ok, err := operation()
		done <- result{ok, err}
	}()
	select {
	case r := <-done:
		return r.ok, r.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// record notes a node's answer; it reports whether the operation had a majority
// before.
func (o *op) record(i int, a answer) (confirmed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers[i] = a
	if o.through++; o.through == len(o.answers) {
		o.end()
	}
	return o.confirmed
}

func (o *op) confirm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.confirmed = true
}

func (o *op) snapshot() []answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.answers)
}

// without counts the nodes that are known not to have the claim after a release.
func (o *op) without() int {
	n := 0
	for _, a := range o.snapshot() {
		if a.state == yes || a.state == no {
			n++
		}
	}
	return n
}

// mayHaveHeld counts the nodes that had the claim when a release was sent, as far as
// one can tell: what a node says it does not have after the end of the lease may have
// expired there while the release was on its way.
func (o *op) mayHaveHeld() int {
	n := 0
	for _, a := range o.snapshot() {
		if a.state == yes || a.state == no && a.late {
			n++
		}
	}
	return n
}

// trouble is the error of an operation that has no majority: what each node said,
// by name. denied is what a plain no means.
func (o *op) trouble(doing, denied string) *driver.StoreError {
	said := &nodesError{}
	agreed, permanent, conflicts := 0, 0, 0
	for i, a := range o.snapshot() {
		err := a.err
		var refined *driver.StoreError
		switch {
		case a.state == yes:
			agreed++
			continue
		case a.state == no:
			err = errors.New(denied)
		case a.state == unanswered:
			err = errors.New("no answer yet")
		case errors.Is(err, locker.ErrConflict):
			conflicts++
		case errors.As(err, &refined) && refined.Permanent:
			permanent++
		}
		said.errs = append(said.errs, fmt.Errorf("node %s: %w", o.d.nodes[i].name, err))
	}
	said.doing = fmt.Sprintf("%d of %d nodes %s, %d are needed", agreed, len(o.d.nodes), doing, o.d.quorum)
	spare := len(o.d.nodes) - o.d.quorum
	said.conflict = conflicts > spare
	return &driver.StoreError{Err: said, Permanent: permanent+conflicts > spare}
}

type nodesError struct {
	doing    string
	errs     []error
	conflict bool // so many nodes have something else at the key that there is no majority without them
}

func (e *nodesError) Error() string {
	all := make([]string, len(e.errs))
	for i, err := range e.errs {
		all[i] = err.Error()
	}
	return e.doing + ": " + strings.Join(all, "; ")
}

// Unwrap leaves out the ends of contexts, which are the nodes', not the caller's, and
// what a majority need not mind.
func (e *nodesError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.errs), func(err error) bool {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
			errors.Is(err, locker.ErrConflict) && !e.conflict
	})
}

func (o *op) ask(i int) answer {
	a := o.hold.do(o.ctx, i, o.kind, func() answer { return o.send(i) })
	if o.kind == opRelease && a.state == no {
		o.tell(i)
	}
	return a
}

// tell tells a node that took no part in the grant of its token, so that it proposes
// the same as the others next time. Nothing depends on it.
func (o *op) tell(i int) {
	n, token := o.d.nodes[i], o.req.Token
	if o.hold.untold(i, token) == 0 || n.isDown() || !n.known.Load() {
		return
	}
	_ = n.call(o.ctx, func() answer { return o.d.releaseOnce(o.ctx, o.hold, i, o.req.Claim) })
}

// askAhead asks one node before the others, which is the same for all contenders:
// several that are woken by the same release would else ask all nodes at the same time,
// and split their votes. A contender that is refused there lets another go first, and
// then asks all nodes, since the one may have the rest of a lock that no majority has.
// A slow one is not waited for.
func (o *op) askAhead(ctx context.Context, i int) {
	if i < 0 {
		return
	}
	o.ahead, o.early = i, make(chan answer, 1)
	sent := time.Now()
	go func() { o.early <- o.ask(i) }()
	patience := o.d.patience(o.req.TTL)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-o.early:
		if a.state != no {
			o.early <- a
			return
		}
		o.ahead = -1
	case <-timer.C:
		return
	case <-ctx.Done():
		return
	}
	// The other has as long a way to the rest.
	took := min(time.Since(sent), patience/5)
	timer.Reset(took + rand.N(2*took+1))
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send sends it, the claim's turn on the node having come.
func (o *op) send(i int) answer {
	n := o.d.nodes[i]
	if err := o.d.skip(n); err != nil {
		return answer{state: failed, err: err}
	}
	if err := n.ready(o.ctx); err != nil {
		return answer{state: failed, err: err}
	}
	if o.kind == opAcquire {
		return o.acquire(n)
	}
	return n.call(o.ctx, func() answer {
		switch o.kind {
		case opRelease:
			a := o.d.releaseOnce(o.ctx, o.hold, i, o.req.Claim)
			a.late, a.token = o.hold.over(time.Now()), o.req.Token // the script has told it that
			return a
		case opConfirm:
			c := o.req.Claim
			c.Token = o.token
			a := verdict(n.Run(o.ctx, confirmScript, c, o.hold.last(c.Token)))
			a.token = c.Token
			return a
		}
		return verdict(n.Run(o.ctx, renewScript, o.req.Claim))
	})
}

// acquire asks a node for the lock. One that still has an earlier claim of this Locker is
// asked again: an Unlock returns when a majority is without the claim, and if another node
// fails then, the majority of this attempt may need the one that the release is on its way
// to.
func (o *op) acquire(n *node) answer {
	end := time.Now().Add(o.d.nodeTimeout(o.req.TTL) / 8)
	for pause := time.Millisecond; ; pause *= 2 {
		var holder string
		a := n.call(o.ctx, func() answer {
			g, err := n.Acquire(o.ctx, o.req)
			holder = g.Owner
			return tried(g, err)
		})
		if a.state != no || lockerOf(holder) != lockerOf(o.req.ID) || time.Now().Add(pause).After(end) {
			return a
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-o.ctx.Done():
			timer.Stop()
			return a
		}
	}
}

// lockerOf is the part of a claim's id that all of a Locker have in common.
func lockerOf(id string) string {
	prefix, _, _ := strings.Cut(id, ":")
	return prefix
}

func tried(g driver.Answer, err error) answer {
	a := answer{state: no, token: g.Token, remaining: g.Remaining, noWakeUp: g.NoWakeUp, err: err}
	switch {
	case errors.Is(err, locker.ErrConflict):
		a.state, a.err = failed, &driver.StoreError{Err: err, NotApplied: true}
	case err != nil:
		a.state = failed
	case g.Granted:
		a.state = yes
	}
	return a
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
