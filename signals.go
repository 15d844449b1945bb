package locker

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// ReleaseRequested returns a channel that is closed when somebody asks the holder to give the lock
// back, by [Client.RequestRelease]. Nothing is taken away: the holder unlocks when it is ready, or
// never. All leases on one claim share the channel. After a request the lock is not handed over
// inside the process: other processes get their turn.
//
// The first call makes the Locker listen, and waits until it does, for a second at most. A later request arrives within
// two round trips while the store is well: within one on a single Redis and with redlock, within three with strategy/etcd,
// and with strategy/mysql up to 100 ms later. A request may be lost: ask again if it matters. A Locker that listens also
// learns of a [Client.ForceUnlock], within one round trip more; others learn of it at their next renewal.
//
// Listening ends soon after the end of the last lease whose ReleaseRequested was called. It costs a subscription,
// and with a strategy without wake-ups (setnx) a connection. Without the permission to subscribe, and with a driver
// that is no [driver.Signaller], nothing arrives. Nothing arrives for permits either: for those of a [Semaphore],
// and for those of an [RWLock] where the driver keeps permits.
func (l *Lease) ReleaseRequested() <-chan struct{} {
	if l.zero() {
		return closedChan
	}
	requested, listens := l.listen()
	if listens {
		l.claim.e.listen()
	}
	return requested
}

// listen returns the channel of requests, and whether the lease waits for one.
func (l *Lease) listen() (requested <-chan struct{}, waits bool) {
	c := l.claim
	defer c.lock().Unlock()
	if l.isPassedOn() {
		return openChan, false
	}
	r := c.rarely()
	if r.requested == nil {
		if r.requested = make(chan struct{}); r.asked {
			close(r.requested)
		}
	}
	if waits = c.state == claimHeld && !r.asked && c.e.signaller != nil; waits && !r.listens {
		r.listens = true
		c.e.listening.wanted.Add(1)
	}
	return r.requested, waits
}

// heard draws the conclusions from a signal, which may be late, or anybody's: it counts only
// for a claim that is held.
func (e *Client) heard(sig driver.Signal) { e.conclude(sig).freeUnclaimed() }

// conclude returns the claim to be released, if that is kept without a lease.
func (e *Client) conclude(sig driver.Signal) *claim {
	s := e.stripeOf(sig.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig.Kind == driver.SignalWaiting {
		return e.othersWait(s, sig)
	}
	ks := s.keys[sig.Key]
	if ks == nil {
		return nil
	}
	c := ks.claim(sig.Claim)
	known := sig.Kind == driver.SignalRequest || sig.Kind == driver.SignalBroken
	switch {
	case c == nil || c.state != claimHeld || !known:
	case c == ks.kept():
		return s.wanted(c)
	case sig.Kind == driver.SignalRequest:
		c.ask()
	default:
		c.doubt()
	}
	return nil
}

// ask lets the leases know that somebody asks for the release. It needs the mutex.
func (c *claim) ask() {
	r := c.rarely()
	if r.asked {
		return
	}
	r.asked = true
	if r.requested != nil {
		close(r.requested)
	}
	if !c.reported && c.e.notices.wanted {
		c.e.notices.event(context.Background(), c.event(EventReleaseRequested, nil))
	}
}

// asked reports whether somebody has asked for the release. It needs the mutex.
func (c *claim) asked() bool { return c.rare != nil && c.rare.asked }

// hush notes that the present tenure waits for no request any more; a claim that may be kept does, as long as it
// is held. It needs the mutex.
func (c *claim) hush() {
	if c.rare != nil && c.rare.listens && (c.rare.sticky == nil || c.state != claimHeld) {
		c.rare.listens = false
		c.e.listening.unwanted()
	}
}

const (
	// doubtEvery is how often the store is asked about a claim that somebody says is broken: a
	// forged signal costs a command a second at most.
	doubtEvery   = time.Second
	doubtTimeout = 2 * time.Second
)

// doubt makes the Locker ask the store, a little later, whether the claim still holds its key. It needs the mutex.
func (c *claim) doubt() {
	if r := c.rarely(); !r.doubted {
		r.doubted = true
		time.AfterFunc(r.doubtNext-c.e.sched.Now(), c.check)
	}
}

// renews reports whether a renewal may ask the store about the claim: whoever may lock may renew. A claim that is not renewed by
// itself, or has no lease, would last longer than it should. It needs the mutex.
func (c *claim) renews() bool {
	return c.leases != nil && c.entry.Interval > 0 && c.renewals == noLimit
}

// check asks the store, by a renewal or else by a look at who holds the key.
func (c *claim) check() {
	c.s.mu.Lock()
	held := c.state == claimHeld
	if held {
		c.rare.doubted, c.rare.doubtNext = false, c.e.sched.Now()+doubtEvery
		c.s.calls.Add(1)
	}
	renews := c.renews()
	c.s.mu.Unlock()
	if !held {
		return
	}
	defer c.s.exit()
	defer func() {
		if v := recover(); v != nil {
			_ = c.e.panicked("checking a claim", v)
		}
	}()
	ctx := bound.New(context.Background(), doubtTimeout, c.e.life)
	defer ctx.Stop()
	if renews {
		sent, err := c.e.sched.Now(), errNoAnswer
		c.e.driver.Renew(ctx, []driver.Claim{c.Claim}, func(_ int, e error) { err = e })
		c.renewed(context.Background(), sent, err, false)
		return
	}
	inspector, ok := c.e.driver.(driver.Inspector)
	if !ok || c.Limit > 0 { // Inspect does not show who has permits
		return
	}
	// The owner's share may be another claim of the owner's.
	h, err := inspector.Inspect(ctx, c.Key)
	switch {
	case err != nil:
		c.giveUpKept().freeUnclaimed() // it is not known to be there
	case !h.Held || h.ID != c.ID && h.Owner != c.Owner:
		_ = c.denied()
	}
}

// RequestRelease asks the holder of key to give it back: [Lease.ReleaseRequested] of the holder's leases
// closes, and the observer of its Locker gets an [EventReleaseRequested]. This takes two round trips at
// most: one if the driver is a [driver.Asker], three with strategy/etcd, and with strategy/mysql up to
// 100 ms more. The holder does as it likes. RequestRelease returns nil when the request was sent, also if
// nobody listens. A request may be lost, so ask again if it matters. RequestRelease fails with
// [ErrNotHeld] if the key is free, with [ErrConflict] if the holder is no Locker of this library or has
// permits, with [ErrUnavailable], and with [ErrInvalid] and [errors.ErrUnsupported] if the driver is no
// [driver.Inspector] and [driver.Signaller]. Where several processes share the lock as one owner, the one
// that [Client.Inspect] names is asked. It sends two commands, one by a [driver.Asker], three with
// strategy/etcd.
func (e *Client) RequestRelease(ctx context.Context, key string) error {
	if err := checkKey(key, e.set.prefix+key); err != nil {
		return err
	}
	c, d, err := e.administer(ctx, "ask for the release of", key)
	if err != nil {
		return err
	}
	defer c.leave()
	const unreachable = "the driver cannot reach the holder of a lock"
	if e.signaller == nil {
		return c.fail(ErrInvalid, errors.ErrUnsupported, unreachable)
	}
	h, asked, err := c.inspectAndAsk(d)
	if err != nil {
		return c.inspection(err)
	}
	sig := driver.Signal{Kind: driver.SignalRequest, Key: c.key, Claim: h.ID}
	switch locker, ours := driver.LockerOf(h.ID); {
	case !h.Held:
		return c.fail(ErrNotHeld, errors.New("the key is free"), "")
	case h.Limit > 0:
		return c.fail(conflict("the key has permits, of a Semaphore or an RWLock, whose holders cannot be asked"), nil, "")
	case !ours:
		return c.fail(conflict("the holder is no Locker of this library, and cannot be asked"), nil, "wait until it gives the key back, or take the key by ForceUnlock")
	case locker == e.id():
		e.heard(sig)
		return nil
	case asked:
		return nil
	}
	err = c.command(commandTimeout, func(ctx context.Context) error { return e.signaller.Signal(ctx, sig) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return c.fail(ErrInvalid, err, unreachable)
	case err != nil:
		return c.unavailable(err, "")
	}
	return nil
}

// inspectAndAsk returns the holder, and whether the driver has asked it for the release.
func (c *call) inspectAndAsk(d driver.Inspector) (h Holder, asked bool, err error) {
	err = c.command(commandTimeout, func(ctx context.Context) (err error) {
		if a, ok := d.(driver.Asker); ok {
			if h, asked, err = a.Ask(ctx, c.key); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
		}
		h, err = d.Inspect(ctx, c.key)
		return err
	})
	return h, asked, err
}

// signalBroken lets the holder of h, whose lock was broken, know. A driver that did so with the Break does no harm: of two
// signals the second is about what is no claim any more. If both are lost, the holder learns of it at its next renewal.
func (c *call) signalBroken(h Holder) {
	locker, ours := driver.LockerOf(h.ID)
	if c.e.signaller == nil || !ours || locker == c.e.id() {
		return
	}
	sig := driver.Signal{Kind: driver.SignalBroken, Key: h.Key, Claim: h.ID}
	err := c.command(doubtTimeout, func(ctx context.Context) error { return c.e.signaller.Signal(ctx, sig) })
	if err != nil {
		c.e.log.Debug("the holder got no signal that its lock was broken; its next renewal shows it", "strategy", c.e.name, "err", err)
	}
}
