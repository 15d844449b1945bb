package locker

import (
	"context"
	"time"

	"github.com/distlock/locker/driver"
)

// duty is what an Unlock owes the store.
type duty uint8

const (
	dutyNone    duty = iota
	dutyCount        // the new hold count
	dutyRelease      // freeing the key
	dutyTidy         // release in the background; the caller is not kept waiting
)

// Unlock gives the lease back; the last lease of an acquisition frees the key.
// It does not need ctx alive: under a live one it returns by ctx's end at the
// latest while the release goes on in the background, under a dead one it
// takes up to 5 s. Where ctx is the lease's own context or derives from it, its
// parent counts instead.
//
// It returns nil when the hold was given back, and [ErrNotHeld] when the lease was
// unlocked before. It returns [ErrLost] when the lease had ended before: another owner may
// have been inside, unless [WithMaxHold] or [WithMaxRenewals] ended it, whose key is
// freed early. It returns [ErrUnavailable] when no answer came: then it may be called
// again, and the TTL frees the key in any case. It works after Close of the Locker, too.
//
// Where another goroutine waits for the lock, Unlock may hand it over inside the
// process, see [WithHandOver], and does not ask the store: then nil means that no loss
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
	ctxs.end(context.Canceled) // this critical section is over before the next one begins
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
	return u.conclude(wait.Err(), err, answer)
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
	l.claim.s.calls.add(1)
	return ctxs, nil
}

// unlocking is an Unlock that goes on.
type unlocking struct {
	*Lease
	caller context.Context // events come with it
	done   bool            // it is not to be called again: the lease was given back, or lost
	queue  *keyState       // of the key whose queue waits for the release; nil: none does

	// What came of the release in the end; settled once that is known.
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
	c.s.calls.add(-1)
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
//	lost: expired   yes         release, tidily    the loss
//	lost: a limit   yes         release            the loss
//	lost: Close     yes         release            nil
//	lost, not so    no          nothing            the loss; nil after Close
//
// (1) only to a HoldCounter. (2) nothing where the claim is offered to the next waiter.
// (3) Unlock is called again after ErrUnavailable.
//
// From here on no other lease re-enters a claim whose last lease this was.
func (u *unlocking) decide() (d duty, answer error) {
	l, c := u.Lease, u.claim
	defer c.lock().Unlock()
	if c.offer(u.caller, l) {
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
	case c.state == claimHeld && c.e.counter != nil:
		d = dutyCount
	case c.state == claimReleasing && l.last:
		d = dutyRelease
	case c.state == claimFreed && l.last:
		answer = c.outcome
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

// owedWhenLost is decide for a lost claim. It needs the mutex.
func (c *claim) owedWhenLost(last bool) (d duty, answer error) {
	if last {
		c.s.forgetLost(c)
	}
	if answer = c.outcome; c.lossKind == lossClosed {
		answer = nil
	}
	switch {
	case !last || c.lossKind == lossDenied:
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
		if u.settled = isSettled(err); u.settled {
			u.kind, u.outcome = u.claim.releaseEnd(err)
		} else {
			u.claim.e.freeLater(u.caller, u.claim)
		}
	}()
	err = u.claim.e.retry(ctx, u.claim.free)
	return err
}

// conclude turns what came of sending into Unlock's result. end is why the wait for an answer
// ended, if it did.
func (u *unlocking) conclude(end, err, answer error) error {
	u.done = true
	switch {
	case err == nil:
		return answer
	case isLost(err):
		if answer != nil {
			return answer
		}
		return err
	}
	u.done = false
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

// LetExpire ends the lease and leaves the key locked in the store until its TTL is over,
// counted from the grant or the last renewal: for what must not be done again for a while.
// It sends the store no command. The Locker forgets the lock at once: the lock is not
// renewed any more (a renewal that is under way may still count), its end is no loss, and
// callers in this process wait for the key as for another process's.
//
// Contexts of the lease end as after [Lease.Unlock], and a later Unlock returns
// [ErrNotHeld]. Of several leases on one acquisition, the last to end decides: Unlock
// frees the key, LetExpire leaves it.
//
// It returns [ErrLost] when the lease was lost before, and [ErrNotHeld] when the lease has
// ended by Unlock or LetExpire, or an Unlock of it was tried. After Close of the Locker it returns nil
// unless the lease was lost already.
func (l *Lease) LetExpire() error {
	if l.zero() {
		return errZeroLease("LetExpire")
	}
	ctxs, recount, answer := l.letExpire()
	if recount {
		l.claim.e.correctHolds(l.claim)
	}
	ctxs.end(context.Canceled) // last: their parents may be the user's own types, and block
	return answer
}

// letExpire reports whether the store's hold count is to follow.
func (l *Lease) letExpire() (ctxs leaseContexts, recount bool, answer error) {
	c := l.claim
	defer c.lock().Unlock()
	if l.state != leaseHeld {
		return nil, false, l.notHeld("let expire")
	}
	ctxs = l.ctxs
	l.ctxs, l.state = nil, leaseDone
	c.drop(l)
	l.last = c.leases == nil
	switch {
	case c.state == claimLost:
		_, answer = c.owedWhenLost(l.last)
	case l.last:
		// As far as this process is concerned, the claim is freed.
		c.release(claimFreed)
		c.outcome = nil
		c.reportEnd(context.Background(), EventLetExpire, nil)
		c.s.detach(c)
	default:
		recount = c.e.counter != nil
	}
	return ctxs, recount, answer
}

// giveBackWithin is for how long a call waits for a lease that it gives back; what is not
// answered by then goes on in the background.
const giveBackWithin = 200 * time.Millisecond

// giveBack unlocks a lease that its caller does not get; nil is none.
func (l *Lease) giveBack(ctx context.Context) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	_ = l.Unlock(ctx)
}
