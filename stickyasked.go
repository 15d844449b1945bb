package locker

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// Requests for kept claims: those that this Locker gets, and those that it sends.

// wanted gives up a kept claim that somebody has asked for, for freeUnclaimed. It needs the mutex.
func (s *stripe) wanted(c *claim) *claim {
	cool := c.e.coolness(s, c.Key)
	if c.stick().uses >= useful {
		cool.pause = coolMin
	} else {
		cool.pause = min(max(2*cool.pause, coolMin), coolMax)
	}
	cool.until = max(cool.until, c.e.sched.Now()+cool.pause)
	return s.keys[c.Key].withdraw()
}

// othersWait draws the conclusions from a SignalWaiting. It returns the claim to be released, if that
// is kept. It needs the mutex.
func (e *Client) othersWait(s *stripe, sig driver.Signal) *claim {
	if e.set.sticky == 0 {
		return nil
	}
	ks := s.keys[sig.Key]
	if c := ks.kept(); c != nil && c.ID == sig.Claim {
		return s.wanted(c)
	}
	// A claim that is held; or one that is not known yet, as the answer to the attempt is on its way.
	cool := e.coolness(s, sig.Key)
	cool.until = max(cool.until, e.sched.Now()+coolBusy)
	if ks != nil && ks.current != nil && ks.current.stick() != nil {
		ks.current.rare.sticky.off = true
	}
	return nil
}

// coolness is until when claims of a key are not kept, and for how long that was. Keys share it: what
// they lose is a command.
type coolness struct{ until, pause time.Duration }

func (e *Client) coolness(s *stripe, key string) *coolness {
	return &s.cool[maphash.String(e.seed, key)>>32%uint64(len(s.cool))]
}

// hears begins a session of listening for a claim that may be kept, unless there is one, or one has failed of late.
func (e *Client) hears() {
	if !e.listening.live.Load() && int64(e.sched.Now()) >= e.listening.quiet.Load() {
		e.session()
	}
}

// askHolder asks the holder that the refusal a names for the lock, if nobody may be using it. It reports whether the
// holder was asked, now or by the store.
func (c *call) askHolder(a driver.Answer) bool {
	if !driver.MayBeUnused(a.Owner) {
		return false
	}
	locker, ours := driver.LockerOf(a.Owner)
	if a.Asked || !ours || locker == c.e.id() || c.e.signaller == nil {
		return a.Asked
	}
	err := c.command(min(releaseTimeout, c.ttl), func(ctx context.Context) error {
		return c.e.signaller.Signal(ctx, driver.Signal{Kind: driver.SignalWaiting, Key: c.key, Claim: a.Owner})
	})
	return err == nil
}

// afterAsking waits until a TryLock that was refused may try once more; it reports false if it may not. Where the store is
// in trouble, it may not: the call would take four times as long as one attempt.
func (c *call) afterAsking(sent time.Duration) bool {
	c.turnedAway = true
	trip := c.e.sched.Now() - sent
	return trip <= askTrip && bound.Sleep(c.ctx, c.e.closed, trip+askAgain)
}
