package locker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker/renewal"
)

// claim is this process's hold of a key in the store. Leases are its callers'
// views of it: re-entry adds one, the last Unlock gives the claim back. The
// watchdog renews claims, not leases.
//
// Lock order: shard.mu before claim.mu; neither is held while the store, an
// observer or a context is called.
type claim struct {
	Claim
	e       *engine
	userKey string
	named   bool // the owner was named by ContextWithOwner
	granted time.Time
	watched renewal.Entry[*claim]

	// One SetHolds or Release of the claim at a time, so that the absolute
	// counts they send arrive in order. Made only for a HoldCounter.
	op chan struct{}

	mu       sync.Mutex
	state    claimState
	leases   []*Lease // not unlocked
	loss     error    // when lost
	lossKind lossKind
	// unsure: a release was sent while the claim was valid and its answer did
	// not arrive. A later "not the holder" then means that it was applied.
	unsure bool
}

type claimState uint8

const (
	claimHeld claimState = iota
	claimReleasing
	claimLost
)

type lossKind uint8

const (
	lossDenied  lossKind = iota // the store says so: nothing of ours is there
	lossExpired                 // the deadline passed; the key may linger
	lossLimit                   // a limit of the caller's own: the key is ours till the deadline
	lossClosed                  // the Locker was closed; likewise
)

var errDenied = errors.New("the store says that another holder or nobody has the key")

// checkClock reports whether the claim is lost, having looked at the clock.
func (c *claim) checkClock() bool {
	if !c.e.sched.Expired(&c.watched) {
		return false
	}
	// Another goroutine may have found it first and be on its way here.
	c.lose(c.e.sched.Cause(&c.watched))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == claimLost
}

func (c *claim) deadline() time.Time { return c.e.sched.Deadline(&c.watched) }

func (c *claim) countHolds() int {
	c.checkClock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == claimLost {
		return 0
	}
	return len(c.leases)
}

// lose ends the claim and its leases for cause, once.
func (c *claim) lose(cause error) {
	kind := lossDenied
	if errors.Is(cause, ErrLost) {
		cause = errDenied // a driver's word for it
	}
	switch {
	case errors.Is(cause, renewal.ErrExpired):
		kind = lossExpired
	case errors.Is(cause, renewal.ErrMaxHold), errors.Is(cause, renewal.ErrMaxRenewals):
		kind = lossLimit
	case errors.Is(cause, ErrClosed):
		kind = lossClosed
	}

	c.mu.Lock()
	if c.state != claimHeld {
		c.mu.Unlock()
		return
	}
	c.state = claimLost
	c.loss = &lossError{c.e.name, c.userKey, cause}
	c.lossKind = kind
	loss := c.loss
	var ctxs []leaseContexts
	for _, l := range c.leases {
		l.state = leaseLost
		if l.lost != nil {
			close(l.lost)
		}
		if l.ctxs != nil {
			ctxs = append(ctxs, l.ctxs)
			l.ctxs = nil
		}
	}
	c.mu.Unlock()

	for _, cs := range ctxs {
		cs.end(loss)
	}
	c.e.detach(c)
	c.e.log.Warn("lock lost", c.logged(), slog.Any("err", cause))
	c.e.events.later(c.event(EventLost, time.Since(c.granted), loss))
}

// logged are the attributes by which a claim is known in logs. Its id is not: it
// stands in the store.
func (c *claim) logged() slog.Attr { return slog.Any("", (*loggedClaim)(c)) }

type loggedClaim claim

// LogValue implements [slog.LogValuer].
func (c *loggedClaim) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("strategy", c.e.name), slog.String("key", c.userKey), slog.Int64("token", c.Token)}
	if c.named {
		attrs = append(attrs, slog.String("owner", c.Owner))
	}
	return slog.GroupValue(attrs...)
}

func (c *claim) event(kind EventKind, d time.Duration, err error) Event {
	return Event{Kind: kind, Strategy: c.e.name, Key: c.userKey, Owner: c.Owner, Token: c.Token, Duration: d, Err: err}
}

// addLease adds a lease if the claim is held and, for re-entry, not yet given
// back.
func (c *claim) addLease() (*Lease, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != claimHeld {
		return nil, false
	}
	l := &Lease{e: c.e, claim: c}
	c.leases = append(c.leases, l)
	return l, true
}

func (c *claim) lossOf() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss
}

// errGone says that a claim was given back before it could be re-entered.
var errGone = errors.New("the claim was given back")

// reenter adds a lease to c, telling the store if it keeps counts. It fails with
// errGone if c was given back meanwhile.
func (c *claim) reenter(ctx context.Context, try bool) (*Lease, error) {
	if c.checkClock() {
		return nil, c.lossOf()
	}
	if c.e.counter == nil {
		if l, ok := c.addLease(); ok {
			return l, nil
		}
		if loss := c.lossOf(); loss != nil {
			return nil, loss
		}
		return nil, errGone
	}

	if try {
		// What the claim's other leases ask of the store comes first, and may hang.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, min(commandTimeout, c.TTL), errNoAnswer)
		defer cancel()
	}
	var pause backoff
	for {
		l, err := c.reenterCounted(ctx)
		if err == nil || try || errors.Is(err, ErrLost) || errors.Is(err, errGone) || isPermanent(err) || ctx.Err() != nil {
			return l, err
		}
		if !sleep(ctx, c.e.closed, pause.next(outagePauseMin, outagePauseMax)) {
			if ctx.Err() == nil {
				err = ErrClosed
			}
			return nil, err
		}
	}
}

func (c *claim) reenterCounted(ctx context.Context) (*Lease, error) {
	select {
	case c.op <- struct{}{}:
	case <-ctx.Done():
		err := ctx.Err()
		if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
			err = cause
		}
		return nil, &StoreError{Err: err, NotApplied: true}
	}
	c.mu.Lock()
	state, n := c.state, len(c.leases)+1
	c.mu.Unlock()
	if state == claimReleasing {
		<-c.op
		return nil, errGone
	}
	if state == claimLost {
		<-c.op
		return nil, c.lossOf()
	}

	type result struct {
		l   *Lease
		err error
	}
	add := func(err error) result {
		if errors.Is(err, ErrLost) {
			c.denied()
		} else if err != nil {
			return result{err: err}
		}
		if !c.checkClock() {
			if l, ok := c.addLease(); ok {
				return result{l: l}
			}
		}
		if loss := c.lossOf(); loss != nil {
			return result{err: loss}
		}
		return result{err: errGone} // given back meanwhile
	}
	r, left := detached(ctx, c.e, commandTimeout,
		func(ctx context.Context) result {
			defer func() { <-c.op }()
			return add(c.e.counter.SetHolds(ctx, c.Claim, n))
		},
		// The caller has gone: take the lease back, if there is one.
		func(r result) {
			if r.l != nil {
				_ = r.l.Unlock(context.Background())
			}
		})
	switch {
	case left && c.e.isClosed():
		return nil, ErrClosed
	case left:
		return nil, errNoAnswer
	}
	return r.l, r.err
}

// denied notes that the store says that c does not hold the key.
func (c *claim) denied() {
	c.e.sched.Fail(&c.watched, errDenied)
	c.lose(errDenied)
}

// giveBack is what an Unlock does to the store: it writes the new count, or, the
// last one, frees the key.
func (c *claim) giveBack(ctx context.Context, last bool) error {
	if c.op != nil {
		select {
		case c.op <- struct{}{}:
			defer func() { <-c.op }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	n, state, kind, loss := len(c.leases), c.state, c.lossKind, c.loss
	c.mu.Unlock()

	switch {
	case state == claimHeld:
		err := c.e.retry(ctx, func(ctx context.Context) error { return c.e.counter.SetHolds(ctx, c.Claim, n) })
		if errors.Is(err, ErrLost) {
			c.denied()
			return &lossError{c.e.name, c.userKey, errDenied}
		}
		return err
	case !last:
		return loss // the last Unlock frees the key, whatever the count says
	case state == claimReleasing:
		return c.free(ctx)
	case kind == lossDenied:
		return loss
	default:
		// Lost by the clock or by a limit: the key may still be ours in the
		// store, and nobody needs to wait for the rest of the TTL.
		err := c.free(ctx)
		if kind == lossClosed {
			return err
		}
		return loss
	}
}

// free releases the claim in the store.
func (c *claim) free(ctx context.Context) error {
	valid := time.Now().Before(c.deadline())
	return c.e.retry(ctx, func(ctx context.Context) error {
		err := c.e.driver.Release(ctx, c.Claim)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrLost):
			if c.unsure {
				return nil
			}
			return &lossError{c.e.name, c.userKey, errDenied}
		case maybeApplied(err) && valid:
			c.unsure = true
		}
		return err
	})
}

// dropLease takes l off the claim; false if it is off already.
func (c *claim) dropLease(l *Lease) bool {
	i := slices.Index(c.leases, l)
	if i < 0 {
		return false
	}
	c.leases = slices.Delete(c.leases, i, i+1)
	return true
}
