package locker

import (
	"cmp"
	"context"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/retry"
)

// duty names the command that an Unlock owes the store.
type duty uint8

const (
	dutyNone    duty = iota
	dutyCount        // the new hold count
	dutyRelease      // freeing the key
	dutyTidy         // release in the background; the caller is not kept waiting
)

// Unlock gives the lease back; the last lease on a claim frees the key. If the store answers,
// Unlock sends one command at most (with redlock one to each node, with mysql and etcd more at
// times). If the store does not answer, Unlock tries for up to 5 s, also if ctx had ended before
// the call. If ctx ends during the call, Unlock returns, and the release goes on in the
// background. Where ctx is the lease's own context or derives from it, its parent counts instead.
//
// It returns nil when the hold was given back, and [ErrNotHeld] when the lease was unlocked before. It returns
// [ErrLost] when the lease had ended before: another owner may have been inside. (If [WithMaxHold] or
// [WithMaxRenewals] ended the lease, no other owner is inside before the Deadline, and Unlock frees the key early.)
// It returns [ErrUnavailable] when no answer came, and the release goes on in the background; or when the store
// refused the release, such as for a missing permission. It may be called again then, and the TTL frees the key in
// any case. After Close of the Locker Unlock works, too: it returns nil although Close has ended the lease, unless
// the key was lost.
//
// Unlock a lost lease, too: if its owner is named by [ContextWithOwner], Lock of the key fails with ErrLost
// for that owner until then.
//
// Where another goroutine waits for the lock, Unlock may hand it over inside the
// process without asking the store, see [WithHandOver]. Then nil means that no loss
// was known.
func (l *Lease) Unlock(ctx context.Context) error {
	switch {
	case l.zero():
		return errZeroLease("Unlock")
	case ctx == nil:
		return invalid("Unlock needs a context; it need not be alive")
	}
	ctxs, err := l.beginUnlock()
	if err != nil {
		return err
	}
	u := unlocking{Lease: l, caller: ctx}
	defer u.end()
	for ctx := range ctxs { // this critical section is over before the next one begins
		ctx.end(context.Canceled)
	}
	d, answer := u.decide()
	switch d {
	case dutyNone:
		return answer
	case dutyTidy:
		l.claim.e.cleanUp(l.claim.Claim, l.claim.e.sched.Now(), true)
		return answer
	}
	wait, cancel := l.untied(ctx)
	defer cancel()
	if wait.Err() != nil {
		wait = context.WithoutCancel(wait)
	}
	if d == dutyCount {
		err = u.sendCount(wait)
	} else {
		err = u.sendRelease(wait)
	}
	if err != nil {
		return u.conclude(bound.End(wait), err, answer)
	}
	u.done = true
	return answer
}

// beginUnlock takes the lease's contexts. It fails if an Unlock is under way or was
// answered. From here on the lease is not re-entered.
func (l *Lease) beginUnlock() (leaseContexts, error) {
	defer l.claim.lock().Unlock()
	if l.state == leaseUnlocking || l.state == leaseDone {
		return nil, l.notHeld("unlock")
	}
	ctxs := l.ctxs
	l.ctxs, l.state = nil, leaseUnlocking
	l.claim.s.calls.Add(1)
	return ctxs, nil
}

// unlocking is an Unlock that goes on.
type unlocking struct {
	*Lease
	caller context.Context // events come with it
	done   bool            // it is not to be called again: the lease was given back, or lost
	queue  *keyState       // of the key whose queue waits for the release; nil: none does

	// The outcome of the release; settled once it is known.
	settled bool
	kind    EventKind
	outcome error
}

// end notes the end of the Unlock, which may be a panic of the driver's.
func (u *unlocking) end() {
	c := u.claim
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if u.settled {
		c.released(u.caller, u.kind, u.outcome)
	}
	if u.queue != nil {
		c.s.endRelease(u.queue, c)
	}
	if u.state = leaseLeft; u.done {
		u.state = leaseDone
	}
	c.s.calls.Add(-1)
}

// decide takes the lease off its claim and says what the store is owed, and what
// Unlock answers if it gets that:
//
//	claim           last lease  owed               answer
//	held            no          its count (1)      nil
//	held            yes         release (2)        nil, or the loss that the release finds
//	being released  yes (3)     release            nil, or the loss that the release finds
//	freed           yes (3)     nothing            what the release in the background found
//	lost: denied    any         nothing            the loss
//	lost: expired   yes         release, tidily    the loss; nothing is owed with a margin
//	lost: a limit   yes         release (4)        the loss
//	lost: Close     yes         release (4)        nil, or the loss if (4)
//	lost, not so    no          nothing            the loss; nil after Close
//
// (1) only to a HoldCounter. (2) nothing where the claim is offered to the next waiter.
// (3) Unlock is called again after ErrUnavailable. (4) nothing within a margin, after the deadline.
//
// From here on no other lease re-enters a claim whose last lease this was.
func (u *unlocking) decide() (d duty, answer error) {
	l, c := u.Lease, u.claim
	defer c.lock().Unlock()
	if (c.handOvers > 0 || c.rare != nil && c.rare.sticky != nil) && c.offer(u.caller, l) {
		u.done = true
		return dutyNone, nil
	}
	if c.drop(l) {
		l.last = c.leases == nil
	}
	switch {
	case c.state == claimHeld && l.last:
		c.release(claimReleasing)
		d = dutyRelease
	case c.state == claimHeld && c.counted():
		d = dutyCount
	case c.state == claimReleasing && l.last:
		d = dutyRelease
	case c.state == claimFreed && l.last:
		answer = c.outcome()
	case c.state == claimLost:
		d, answer = c.owedWhenLost(l.last)
	}
	switch d {
	case dutyNone, dutyTidy:
		u.done = true
	case dutyRelease:
		u.queue = c.s.beginRelease(c)
	}
	return d, answer
}

// owedWhenLost decides for a lost claim. It needs the mutex.
func (c *claim) owedWhenLost(last bool) (d duty, answer error) {
	if last {
		c.s.forgetLost(c)
	}
	inMargin := c.margin() > 0 && c.e.sched.Now() >= c.deadline
	if answer = c.outcome(); c.lossKind == lossClosed && !inMargin {
		answer = nil
	}
	switch {
	case !last || c.lossKind == lossDenied || inMargin:
		return dutyNone, answer
	case c.lossKind == lossExpired:
		return dutyTidy, answer
	}
	return dutyRelease, answer
}

// sendCount and sendRelease give the store what it is owed, and try again until ctx ends or
// the budget of an Unlock is spent. What has not been settled by then, or by a panic of the
// driver's, goes on in the background.
func (u *unlocking) sendCount(ctx context.Context) (err error) {
	err = errNoAnswer
	defer func() {
		if !isSettled(err) {
			u.claim.e.correctHolds(u.claim)
		}
	}()
	err = u.claim.e.retry(ctx, u.claim.syncHolds)
	return err
}

func (u *unlocking) sendRelease(ctx context.Context) (err error) {
	err = errNoAnswer
	defer func() {
		u.kind, u.settled = EventReleased, true
		switch {
		case err == nil:
		case isSettled(err):
			u.kind, u.outcome = u.claim.releaseEnd(err)
		default:
			u.settled = false
			u.claim.e.freeLater(u.caller, u.claim, func() {})
		}
	}()
	err = u.claim.e.retry(ctx, u.claim.free)
	return err
}

// conclude returns Unlock's result if sending has failed with err. end is why the wait for an
// answer ended, if it did.
func (u *unlocking) conclude(end, err, answer error) error {
	if u.done = isLost(err); u.done {
		return cmp.Or(answer, err)
	}
	hint := "the release goes on in the background; Unlock may be called again; the TTL frees the key in any case"
	if driver.IsPermanent(err) {
		hint = "Unlock may be called again; the TTL frees the key in any case"
	}
	if end != nil {
		err = end
	} else {
		err = withoutContextErrors(err)
	}
	return u.fail("unlock", ErrUnavailable, err, hint)
}

// retry calls f, which sends a command of a release, until the store has settled it, ctx ends
// or the budget of an Unlock is spent.
func (e *Client) retry(ctx context.Context, f func(context.Context) error) error {
	now := e.sched.Now()
	end := now + releaseBudget
	var pause retry.Backoff
	for ; ; now = e.sched.Now() {
		once := bound.New(ctx, min(releaseTimeout, end-now), nil)
		err := f(once)
		once.Stop()
		if err == nil || isSettled(err) || ctx.Err() != nil {
			return err
		}
		d := pause.Next(outagePauseMin, outagePauseMax)
		if e.sched.Now()+d >= end || !bound.Sleep(ctx, nil, d) {
			return err
		}
	}
}

// free sends one release of the claim.
func (c *claim) free(ctx context.Context) error {
	if c.e.counter != nil && c.Limit == 0 {
		if err := c.lockCounts(ctx, releaseTimeout); err != nil {
			return err
		}
		defer c.unlockCounts()
	}
	c.s.mu.Lock()
	if c.state == claimFreed {
		defer c.s.mu.Unlock()
		return c.outcome() // by the release in the background, or by another Unlock
	}
	kept := c.deadline
	if c.rare != nil { // few claims have a margin
		kept = c.keptUntil()
	}
	inTime := c.e.sched.Now() < kept
	if inTime {
		c.releases++
	}
	c.s.mu.Unlock()
	err := c.e.driver.Release(ctx, c.Claim)
	if err == nil {
		return nil
	}
	lost, refused := isLost(err), !driver.MaybeApplied(err)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if inTime && refused {
		c.releases--
	}
	switch {
	case !lost:
		return err
	case c.releases > 0:
		return nil // one that was sent in time, and whose answer did not come, was applied
	}
	return &lossError{c.e.name, c.userKey(), ErrDenied}
}

// isSettled reports whether the store has given its last word on a claim: there is
// nothing to be sent again.
func isSettled(err error) bool { return err == nil || isLost(err) || driver.IsPermanent(err) }
