package leader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/wake"
)

// The names of the metadata of a leader's claim.
const (
	metaName    = "leader"
	metaPayload = "payload"
)

// Term is one leadership. Its zero value is vacant.
type Term struct {
	// Identity is the name of [WithIdentity]. Of a holder of the lock that is no candidate of this package
	// it is the owner, if the store knows it.
	Identity string
	Payload  string
	// Token is the fencing token, greater than that of every term before; 0 if the Locker gives none. One
	// that was read from a store that keeps locks on several servers (redlock) may be greater than the
	// leader's own.
	Token int64
	// Since is when the term began: on the clock of the store, or for [TermFromContext] on the local
	// one. It is zero if the store does not know it.
	Since time.Time

	held bool
	id   string // of the claim
}

// Vacant reports whether nobody leads.
func (t Term) Vacant() bool { return !t.held }

// TermFromContext returns the term of a [Func], whose context ctx is, or derives from: also under the lease of
// another lock that the Func has taken. ok is false under any other context.
func TermFromContext(ctx context.Context) (t Term, ok bool) {
	if own, ok := ctx.Value(termKey{}).(*term); ok {
		return own.Term, true
	}
	return Term{}, false
}

type termKey struct{}

// term is one of this candidate's. A nil one is over.
type term struct {
	Term
	lease  *locker.Lease
	lostAt atomic.Pointer[time.Time] // when the loss was noticed, or the lock was given back
}

func (e *Elector) newTerm(lease *locker.Lease) *term {
	return &term{lease: lease, Term: Term{held: true, id: lease.Owner(),
		Identity: e.set.name, Payload: e.set.payload, Token: lease.Token(), Since: time.Now()}}
}

func (t *term) leads() bool { return t != nil && t.lease.Err() == nil }

// context returns the context of the function. The loss is watched for under another one: parent may end before.
func (t *term) context(parent context.Context) context.Context {
	context.AfterFunc(t.lease.Context(context.WithoutCancel(parent)), func() {
		now := time.Now()
		t.lostAt.Store(&now)
	})
	return context.WithValue(t.lease.Context(parent), termKey{}, t)
}

// last returns when the term has lasted for d, or the Locker was closed. A term that is lost lasts on in the store
// if it was a limit of the lock that ended it (WithMaxHold): observers have yet to see it.
func (t *term) last(d time.Duration) {
	timer := time.NewTimer(d - time.Since(t.Since))
	defer timer.Stop()
	select {
	case <-timer.C:
		return
	case <-t.lease.Lost():
	}
	if !errors.Is(t.lease.Err(), locker.ErrClosed) {
		<-timer.C
	}
}

// Leader asks the store who leads. It sends one command. If nobody leads, the error matches [locker.ErrNotHeld]. It
// fails with [locker.ErrUnavailable], with [locker.ErrConflict] if the key holds something that is no lock, with
// [locker.ErrClosed], and with [locker.ErrInvalid] if the Locker is no [locker.Client], or its driver does not show who
// holds a lock.
func (e *Elector) Leader(ctx context.Context) (Term, error) {
	t, err := e.look(ctx)
	switch {
	case err != nil:
		return Term{}, fmt.Errorf("leader: %w", err)
	case t.Vacant():
		return Term{}, fmt.Errorf("leader: nobody leads %q: %w", e.key, locker.ErrNotHeld)
	}
	return t, nil
}

// look returns the present term, which may be vacant.
func (e *Elector) look(ctx context.Context) (Term, error) {
	c, ok := locker.ClientOf(e.l)
	if !ok {
		return Term{}, check.Invalid("%T is no Client and wraps none: it cannot show who leads", e.l)
	}
	h, err := c.Inspect(ctx, e.key)
	if err != nil || !h.Held {
		return Term{}, err
	}
	t := Term{held: true, id: h.ID, Token: h.Token, Since: h.Since, Identity: h.Owner}
	if name := h.Metadata[metaName]; name != "" {
		t.Identity, t.Payload = name, h.Metadata[metaPayload]
	}
	return t, nil
}

// Observe goes through the terms: first who leads now, then each change, until ctx ends. A vacant term
// comes when nobody leads, if that lasts for long enough to be seen. Observe asks the store twice in
// the time of [WithMinTerm], beside the loop, whose body may take its time. While the store answers
// within half of that time, Observe leaves out no term that lasted for at least the time of
// WithMinTerm. All terms last for so long, unless somebody takes the lock away.
//
// When terms may be missing, an error comes, with a vacant term; then the present term comes, whether or not it
// has changed. So it is when the store cannot be asked, and when a look is late, since the store is slow or the
// process was stopped: that error matches [locker.ErrUnavailable], too. The errors are those of [Elector.Leader].
// ErrInvalid and ErrClosed end the loop.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		if ctx == nil {
			yield(Term{}, fmt.Errorf("leader: %w", check.Invalid("Observe needs a context")))
			return
		}
		ctx, stop := context.WithCancel(ctx)
		seen := &changes{more: wake.New()}
		var watching sync.WaitGroup
		watching.Go(func() { e.watch(ctx, seen) })
		defer watching.Wait()
		defer stop()
		for {
			c, ok := seen.next(ctx)
			if !ok || !yield(c.term, c.err) || final(c.err) {
				return
			}
		}
	}
}

// watch notes the changes until ctx ends.
func (e *Elector) watch(ctx context.Context, seen *changes) {
	var last Term
	var before time.Time // when the last look began that had an answer, if no error was noted since
	for first, failed := true, false; ; {
		began := time.Now()
		t, err := e.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			seen.add(change{err: fmt.Errorf("leader: %w", err)})
		case err == nil:
			late := e.late(before, last, t)
			if late != nil {
				seen.add(change{err: late})
			}
			if first || failed || late != nil || t.held != last.held || t.id != last.id {
				seen.add(change{term: t})
			}
			last, first = t, false
		}
		failed, before = err != nil, began
		if failed {
			before = time.Time{}
		}
		if final(err) || !bound.Sleep(ctx, nil, time.Until(began.Add(e.set.minTerm/2))) {
			return
		}
	}
}

// late returns an error if a term may have passed unseen between two looks: the first began at before, and showed
// last; the second has just ended, and shows t. Each shows a moment between its beginning and its end. A claim that
// both show was held all the time.
func (e *Elector) late(before time.Time, last, t Term) error {
	if before.IsZero() || last.held && t.id == last.id {
		return nil
	}
	gap := time.Since(before)
	if gap < e.set.minTerm {
		return nil
	}
	return fmt.Errorf("leader: %q was looked at %v ago and now, and a term may last %v only (WithMinTerm): terms may be missing: %w",
		e.key, gap.Round(time.Millisecond), e.set.minTerm, locker.ErrUnavailable)
}

// final reports whether no later look will do better.
func final(err error) bool {
	return errors.Is(err, locker.ErrInvalid) || errors.Is(err, locker.ErrClosed)
}

// change holds a pair that Observe yields.
type change struct {
	term Term
	err  error
}

// changes holds the pairs that the loop has yet to take.
type changes struct {
	mu   sync.Mutex
	all  []change
	more wake.Signal // there may be some
}

func (q *changes) add(c change) {
	q.mu.Lock()
	q.all = append(q.all, c)
	q.mu.Unlock()
	q.more.Send()
}

// next waits for the next one; ok is false after the end of ctx.
func (q *changes) next(ctx context.Context) (c change, ok bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		if len(q.all) > 0 {
			c, q.all = q.all[0], q.all[1:]
			q.mu.Unlock()
			return c, true
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
		}
	}
	return change{}, false
}
