package locker

import (
	"context"
	"time"
)

// AtRisk returns a channel that is closed when the lease is in danger: renewals have failed, or have
// had no answer, until half of the time from the last success to the Deadline was over. It is closed a
// third of the TTL before the Deadline at the latest. A holder then still has time to save its work, to
// wait, or to stop in good order. A lease that recovers stays held, and AtRisk stays closed. A loss
// closes AtRisk, too; Unlock does not.
//
// A lease that is renewed in time is never at risk. A lease that is not renewed by itself
// ([WithoutRenewal]), or only rarely (a long [WithRenewInterval]), is at risk once it comes near
// its Deadline. A limit ([WithMaxHold], [WithMaxRenewals]) may end a lease that is not at risk.
// AtRisk asks no store.
func (l *Lease) AtRisk() <-chan struct{} {
	if l.zero() {
		return closedChan
	}
	c := l.claim
	defer c.lock().Unlock()
	if l.isPassedOn() {
		return openChan
	}
	c.noteRisk() // a process that was frozen learns of it by its first question
	s := &c.rarely().signals
	if s.atRisk == nil {
		if s.atRisk = make(chan struct{}); c.atRisk {
			close(s.atRisk)
		}
	}
	return s.atRisk
}

// isPassedOn reports whether the lease has left its claim to the next caller, or to one that may come. It needs the mutex.
func (l *Lease) isPassedOn() bool { return l.tenure != l.claim.tenure || l.claim.offered() }

// signals are the channels of the leases of a tenure, made when asked for, and what belongs to
// them.
type signals struct {
	atRisk    chan struct{}
	requested chan struct{}
	asked     bool          // for the release
	listens   bool          // counted in listening.wanted
	doubted   bool          // the store will be asked whether the claim still holds its key
	doubtNext time.Duration // not before
}

// openChan is never closed.
var openChan = make(chan struct{})

// riskAfter returns how long after the last successful renewal a lease is at risk whose
// renewals fail.
func riskAfter(ttl, margin time.Duration) time.Duration {
	validity := validityOf(ttl) - margin
	return min(validity/2, validity-ttl/3)
}

// riskAt returns when the claim is at risk unless it is renewed before. It needs the mutex.
func (c *claim) riskAt() time.Duration {
	late := c.deadline - c.lasts/3
	half := c.deadline - (validityOf(c.lasts)-c.margin())/2
	if c.outcome() == nil { // a renewal that is sent when due has some time for its answer; never: none is
		half = max(half, c.next+c.entry.Interval/4)
	}
	return min(half, late)
}

// noteRisk lets the leases know that they are at risk, if so. It needs the mutex.
func (c *claim) noteRisk() {
	if c.atRisk || c.state != claimHeld || c.e.sched.Now() < c.riskAt() {
		return
	}
	c.closeAtRisk()
	switch {
	case c.leases == nil: // it is offered to the next tenure
		return
	case c.entry.Interval == 0, !c.e.notices.wanted: // nobody renews it: its end is planned
		return
	}
	err := c.outcome()
	if err == nil {
		err = errNoAnswer
	}
	c.e.notices.event(context.Background(), c.event(EventAtRisk, c.unavailable("renew", err)))
}

// closeAtRisk closes AtRisk of the present tenure. It needs the mutex.
func (c *claim) closeAtRisk() {
	if !c.atRisk && c.rare != nil && c.rare.atRisk != nil {
		close(c.rare.atRisk)
	}
	c.atRisk = true
}

// begin begins a tenure that the claim was left to, which may last for maxHold; 0: without
// limit. It needs the mutex.
func (c *claim) begin(now, maxHold time.Duration) {
	if r := c.rare; r != nil {
		c.hush()
		asked := r.asked // since the offer
		if r.signals = (signals{listens: r.listens, doubted: r.doubted, doubtNext: r.doubtNext}); asked {
			c.ask()
		}
	}
	wasAtRisk := c.atRisk
	c.atRisk = false
	if maxHold > 0 {
		c.rarely().limit = now + maxHold
	}
	if maxHold > 0 || wasAtRisk {
		c.schedule()
	}
}
