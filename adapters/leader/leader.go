package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/internal/bound"
)

// Func leads until ctx ends. The token is the fencing token of the term, greater than
// that of every term before; 0 if the Locker gives none.
type Func func(ctx context.Context, token int64) error

// ErrSteppedDown is for a [Func] that ends its term so that another candidate leads: as with any
// error, the lock is given back, and the candidate stands again after a pause.
var ErrSteppedDown = errors.New("leader: stepped down")

// StepDownRequested returns a channel that is closed when somebody asks the leader to step down.
// ctx is the context of a [Func], or derives from it; under another one the channel is nil. The first
// call of a term waits until requests can arrive, for a second at most; see
// [locker.Lease.ReleaseRequested].
func StepDownRequested(ctx context.Context) <-chan struct{} {
	t, ok := ctx.Value(termKey{}).(*term)
	if !ok {
		return nil
	}
	return t.lease.ReleaseRequested()
}

// Run is [New] and [Elector.Run].
func Run(ctx context.Context, l locker.Locker, key string, lead Func, opts ...Option) error {
	e, err := New(l, key, opts...)
	if err != nil {
		return err
	}
	return e.Run(ctx, lead)
}

// Elector is one candidate. It is safe for use by many goroutines.
type Elector struct {
	l    locker.Locker
	key  string
	set  settings
	busy atomic.Bool          // Run is under way
	term atomic.Pointer[term] // nil between terms
	past past
}

// New makes a candidate for the leadership that key stands for. A wrong argument is
// an error that matches [locker.ErrInvalid].
func New(l locker.Locker, key string, opts ...Option) (*Elector, error) {
	s, err := newSettings(opts)
	if err == nil {
		err = locker.Validate(l, key, s.lock...)
	}
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	return &Elector{l: l, key: key, set: s}, nil
}

// IsLeader reports whether the candidate leads. It looks at the clock and does not ask the store.
// It may not be true any more when the caller acts on it; a [Func] has a context for that.
func (e *Elector) IsLeader() bool { return e.term.Load().leads() }

// Token returns the fencing token of the present term; 0 while the candidate does not lead.
func (e *Elector) Token() int64 {
	if t := e.term.Load(); t.leads() {
		return t.Token
	}
	return 0
}

// Run stands for election and leads, over and over, as the package comment says. While
// the store cannot be used it pauses and tries again. It returns
//
//   - ctx's cause ([context.Cause]) after ctx has ended and lead has returned. The lock is kept for the rest of
//     [WithMinTerm] first. If the store does not answer the Unlock, Run returns up to 5 s later,
//   - nil after lead returned nil while it led, or an error that matches
//     [locker.ErrUnavailable] if the lock could not be given back after that,
//   - [locker.ErrClosed] after the Locker was closed, and [locker.ErrInvalid] on misuse. A
//     candidate stands once at a time: a second Run meanwhile is misuse,
//   - [locker.ErrLost] if ctx carries a lease on key ([locker.LeaseFromContext]) that is
//     lost.
//
// A candidate that shares a named owner cannot stand while another candidate of that owner
// has not given back a leadership that it lost: Run reports Failed, pauses and tries again.
func (e *Elector) Run(ctx context.Context, lead Func) error {
	if ctx == nil || lead == nil {
		return fmt.Errorf("leader: %w", check.Invalid("Run needs a context and a function; one of them is nil"))
	}
	if e == nil || e.l == nil {
		return fmt.Errorf("leader: %w", check.Invalid("Run needs an Elector that New has made"))
	}
	if !e.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("leader: %w", check.Invalid("this Elector's Run is under way; another candidate needs an Elector of its own"))
	}
	defer e.busy.Store(false)
	for failures := 0; ; failures++ {
		lease, err := e.l.Lock(ctx, e.key, e.set.lock...)
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case e.isFinal(ctx, err):
			return err
		case err != nil:
			e.past.count(func(s *Stats) { s.Failed++ })
			e.tell(Event{Kind: Failed, Err: err})
		default:
			began := time.Now()
			over, err := e.lead(ctx, lease, lead)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case over:
				return err
			case time.Since(began) > e.set.most, isLimit(err), errors.Is(err, ErrSteppedDown): // no failure
				failures = 0
			}
		}
		if !e.pause(ctx, failures) {
			return context.Cause(ctx)
		}
	}
}

// isFinal reports that no later Lock will do better. An ErrLost is final if Run was called
// under the lost lease itself; else another candidate of the same owner has lost the
// leadership, and has yet to give it back.
func (e *Elector) isFinal(ctx context.Context, err error) bool {
	if errors.Is(err, locker.ErrLost) {
		own, ok := locker.LeaseFromContext(ctx)
		return ok && own.Key() == e.key && errors.Is(own.Err(), locker.ErrLost)
	}
	return errors.Is(err, locker.ErrInvalid) || errors.Is(err, locker.ErrClosed)
}

// lead is one term. over says that it was the last one.
func (e *Elector) lead(ctx context.Context, lease *locker.Lease, lead Func) (over bool, err error) {
	if ctx.Err() != nil { // it ended while the lock was granted
		return true, lease.Unlock(ctx)
	}
	t, returned := e.newTerm(lease), false
	defer func() {
		e.over(t)
		if !returned {
			err = errors.New("the function panicked")
		}
		over = err == nil
		lost := lease.Err()
		t.last(e.set.minTerm)
		if lost == nil && !isLimit(lease.Err()) { // a limit that comes after the function's return is no loss
			lost = lease.Err()
		}
		unlocked := lease.Unlock(ctx)
		switch {
		case lost != nil || unlocked == nil || isLimit(unlocked):
		case errors.Is(unlocked, locker.ErrLost): // the store shows it only now
			lost = unlocked
		default:
			err = errors.Join(err, fmt.Errorf("the lock was not given back: %w", unlocked))
		}
		if lost != nil {
			e.past.count(func(s *Stats) { s.Lost++ })
		}
		over = over && lost == nil || errors.Is(lost, locker.ErrClosed)
		err = errors.Join(err, lost)
		e.tell(Event{Kind: Ended, Token: lease.Token(), Err: err})
	}()
	e.term.Store(t)
	e.tell(Event{Kind: Elected, Token: t.Token})
	err = lead(t.context(ctx), t.Token)
	returned = true
	return false, err
}

// isLimit reports that a limit of the lock has ended it.
func isLimit(err error) bool {
	return errors.Is(err, locker.ErrMaxHold) || errors.Is(err, locker.ErrMaxRenewals)
}

// pause waits before the candidate stands again, and reports whether ctx is alive.
func (e *Elector) pause(ctx context.Context, failures int) bool {
	d := e.set.least
	for ; failures > 0 && d < e.set.most; failures-- {
		d *= 2
	}
	d = min(d, e.set.most)
	return bound.Sleep(ctx, nil, d/2+rand.N(d/2+1)) // candidates that failed together do not come back together
}

func (e *Elector) tell(ev Event) {
	if e.set.observer != nil {
		e.set.observer(ev)
	}
}
