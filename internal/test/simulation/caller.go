package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
)

// caller is a goroutine that locks.
type caller struct {
	w *world
	p *process
	r chance
	n int
}

func newCaller(w *world, n int) *caller {
	return &caller{w: w, p: w.procs[n%len(w.procs)], r: newChance(w.seed, n), n: n}
}

// kind names what a call locks.
type kind int

const (
	plain kind = iota
	reader
	writer
)

func (k kind) String() string { return [...]string{"Lock", "RLock", "Lock as writer"}[k] }

// op is one call of Lock or TryLock.
type op struct {
	c        *caller
	kind     kind
	key      string
	owner    string // "" unless named
	try, do  bool
	ttl      time.Duration
	wait     time.Duration // WithWait; -1: none
	patience time.Duration // of the context; 0: none
	cancel   bool          // the context ends by cancel, not by its deadline
	renewals int           // -1: without a limit
	maxHold  time.Duration
	margin   time.Duration
	detached time.Duration // the context has a deadline after so long, and does not end; 0: no such context

	call, ret time.Duration
	granted   bool
	err       error
}

func (c *caller) run() {
	for range 3 + c.r.IntN(12) {
		if c.p.isClosed() {
			return
		}
		o := c.draw()
		c.once(o)
		if c.w.sticky {
			c.again(o.key)
		}
		bound.Sleep(context.Background(), nil, c.r.upTo(100*time.Millisecond).Truncate(c.w.grain))
	}
}

func (c *caller) draw() *op {
	r, w := c.r, c.w
	o := &op{c: c, key: pick(r, w.keys...), ttl: w.ttls[0], wait: -1, renewals: -1}
	if w.sticky && !r.oneIn(5) { // most keys are used by one process most of the time
		o.key = w.keys[c.p.index%len(w.keys)]
	}
	if r.oneIn(5) {
		o.ttl = pick(r, w.ttls...)
	}
	if w.rw && o.key == w.keys[0] {
		o.kind = pick(r, reader, reader, writer)
	} else if r.oneIn(7) {
		o.owner = "ann"
	}
	switch r.IntN(10) {
	case 0, 1:
		o.try = true
	case 2, 3:
		o.wait = r.upTo(2 * time.Second).Truncate(w.grain)
	case 4, 5:
		o.patience = (1 + r.upTo(time.Second)).Truncate(w.grain)
		o.cancel = r.oneIn(2)
	default:
		o.patience = 20 * time.Second
	}
	o.patience = max(o.patience, 0)
	if gated := o.kind == reader && w.variant != notified; !gated && o.owner == "" { // those who share a lease share its limits
		switch r.IntN(20) {
		case 0, 1:
			o.renewals = 0
		case 2:
			o.renewals = 1 + r.IntN(2)
		case 3:
			o.maxHold = 1 + r.upTo(2*o.ttl)
		case 4:
			o.margin = o.ttl / 4
		}
	}
	o.do = o.kind == plain && !o.try && r.oneIn(8) && !w.panics
	o.drawForeign()
	return o
}

func (o *op) options() (opts []locker.LockOption) {
	opts = append(opts, locker.WithTTL(o.ttl))
	if o.wait >= 0 {
		opts = append(opts, locker.WithWait(o.wait))
	}
	switch {
	case o.renewals == 0:
		opts = append(opts, locker.WithoutRenewal())
	case o.renewals > 0:
		opts = append(opts, locker.WithMaxRenewals(o.renewals))
	}
	if o.maxHold > 0 {
		opts = append(opts, locker.WithMaxHold(o.maxHold))
	}
	if o.margin > 0 {
		opts = append(opts, locker.WithMargin(o.margin))
	}
	return opts
}

// context returns the context of the caller.
func (o *op) context() (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if o.owner != "" {
		ctx = locker.ContextWithOwner(ctx, o.owner)
	}
	switch {
	case o.detached > 0:
		ctx = detached{ctx, time.Now().Add(o.detached)}
	case o.cancel:
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(o.patience, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	case o.patience > 0:
		return context.WithTimeout(ctx, o.patience)
	}
	return ctx, func() {}
}

// lock calls what o says.
func (o *op) lock(ctx context.Context) (_ *locker.Lease, err error) {
	defer recovered(&err)
	l, opts := o.c.p.l, o.options()
	if o.kind == plain {
		if o.try {
			return l.TryLock(ctx, o.key, opts...)
		}
		return l.Lock(ctx, o.key, opts...)
	}
	rw, err := locker.NewRWLock(l, o.key)
	switch {
	case err != nil:
		return nil, err
	case o.try && o.kind == reader:
		return rw.TryRLock(ctx, opts...)
	case o.try:
		return rw.TryLock(ctx, opts...)
	case o.kind == reader:
		return rw.RLock(ctx, opts...)
	}
	return rw.Lock(ctx, opts...)
}

// again locks the key a few times more: a lock that was kept is taken.
func (c *caller) again(key string) {
	if c.w.rw && key == c.w.keys[0] {
		return
	}
	for range c.r.IntN(5) {
		bound.Sleep(context.Background(), nil, c.r.upTo(20*time.Millisecond).Truncate(c.w.grain))
		if c.p.isClosed() {
			return
		}
		o := &op{c: c, key: key, try: c.r.oneIn(3), ttl: c.w.ttls[0], wait: -1, patience: 20 * time.Second, renewals: -1}
		if c.r.oneIn(5) {
			o.renewals = 0 // a kept lock does not suit it
		}
		c.once(o)
	}
}

// once locks, does this and that, and unlocks.
func (c *caller) once(o *op) {
	ctx, cancel := o.context()
	defer cancel()
	c.w.begin(o)
	if o.do {
		c.doOnce(ctx, o)
		return
	}
	l, err := o.lock(ctx)
	if h := c.w.returned(ctx, o, l, err); h != nil {
		c.section(h)
		c.unlock(h)
	}
}

// doOnce is once by locker.Do.
func (c *caller) doOnce(ctx context.Context, o *op) {
	ran := false
	err := locker.Do(ctx, c.p.l, o.key, func(ctx context.Context) error {
		ran = true
		l, _ := locker.LeaseFromContext(ctx)
		h := c.w.returned(ctx, o, l, nil)
		c.section(h)
		h.ends("Do's Unlock")
		return nil
	}, o.options()...)
	var failed *locker.DoError
	switch {
	case err != nil && !errors.As(err, &failed):
		c.w.violate("Do of %s: %v, want a DoError", o.key, err)
	case err != nil && failed.Ran != ran:
		c.w.violate("Do of %s says that its function ran: %t, want %t", o.key, failed.Ran, ran)
	case !ran:
		c.w.returned(ctx, o, nil, failed.Err)
	}
}

// section spends the time in which the lock is held.
func (c *caller) section(h *hold) {
	r, w := c.r, c.w
	long := pick(r, 0, r.upTo(10*time.Millisecond), r.upTo(h.ttl), r.upTo(3*h.ttl)).Truncate(w.grain)
	held := h.lease.Context(context.Background())
	h.slowParent()
	if r.oneIn(5) {
		c.reenter(held, h)
	}
	if r.oneIn(8) {
		c.renew(h)
	}
	for end := w.now() + long; w.now() < end; {
		if !bound.Sleep(held, nil, min(end-w.now(), max(h.ttl/5, 1))) {
			if h.lease.Err() == nil {
				w.violate("%v: its context has ended, and the lease says that it is held", h)
			}
			if r.oneIn(2) {
				bound.Sleep(context.Background(), nil, r.upTo(h.ttl)) // sections need not hurry
			}
			break
		}
		h.ask()
	}
	h.ask()
}

// renew renews by hand.
func (c *caller) renew(h *hold) {
	ctx, cancel := context.WithTimeout(context.Background(), c.r.upTo(h.ttl)+1)
	defer cancel()
	before, began := h.lease.Deadline(), c.w.now()
	err := h.lease.Renew(ctx)
	c.w.count(func(r *Result) { r.Operations++ })
	c.w.tell("caller %d: Renew of %s, token %d, since %v: %v", c.n, h.key, h.token, began, errText(err))
	switch {
	case err == nil:
		h.renewed.Store(true)
		if h.lease.Deadline().Before(before) {
			c.w.violate("%v: Renew has moved the deadline back from %v to %v", h, before.Sub(c.w.began), h.lease.Deadline().Sub(c.w.began))
		}
	case errors.Is(err, locker.ErrLost):
	case errors.Is(err, locker.ErrUnavailable) && (!c.w.calm || ctx.Err() != nil):
	default:
		c.w.violate("%v: Renew: %v", h, err)
	}
}

// reenter locks once more under the lease, and unlocks that.
func (c *caller) reenter(held context.Context, h *hold) {
	ctx, cancel := context.WithTimeout(held, h.ttl)
	defer cancel()
	o := &op{c: c, key: h.key, kind: h.kind, wait: -1, try: c.r.oneIn(3), ttl: h.ttl, renewals: -1}
	inner, err := o.lock(ctx)
	c.w.count(func(r *Result) { r.Operations++ })
	c.w.tell("caller %d: re-entry of %s, token %d: %v", c.n, h.key, h.token, errText(err))
	switch {
	case err == nil && inner.Token() != h.token:
		c.w.violate("%v: re-entered with token %d", h, inner.Token())
	case err == nil:
	case errors.Is(err, locker.ErrLost):
	case (errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable)) && ctx.Err() != nil:
	case errors.Is(err, locker.ErrUnavailable) && !c.w.calm:
	case errors.Is(err, locker.ErrClosed) && c.p.isClosed():
	case errors.Is(err, errPanicked):
		return
	default:
		c.w.violate("%v: re-entry: %v", h, err)
	}
	if err != nil {
		c.p.countCall()
		return
	}
	if c.r.oneIn(2) {
		h.ask()
	}
	c.unlockInner(h, inner)
}

// unlockInner unlocks the lease of a re-entry.
func (c *caller) unlockInner(h *hold, inner *locker.Lease) {
	for range 3 {
		err := inner.Unlock(context.Background())
		c.w.count(func(r *Result) { r.Operations++ })
		c.w.tell("caller %d: inner Unlock of %s, token %d: %v", c.n, h.key, h.token, errText(err))
		switch {
		case err == nil, errors.Is(err, locker.ErrLost):
			return
		case errors.Is(err, locker.ErrUnavailable) && !c.w.calm:
		default:
			c.w.violate("%v: inner Unlock: %v", h, err)
			return
		}
	}
}
