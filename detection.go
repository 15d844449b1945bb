package locker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/wake"
)

const (
	// detectAfter is how long a claim is held before its key is watched: locks that are given
	// back at once cost nothing.
	detectAfter = 10 * time.Millisecond
	// detectLinger is how long the driver watches on when nothing is held.
	detectLinger  = 500 * time.Millisecond
	detectTimeout = 2 * time.Second // of a Watch
)

// WithLossDetection lets a holder learn at once that its key was deleted, has expired or was replaced
// behind its back (by an operator's DEL, by another program, by an eviction), and not at its next renewal. What
// the store shows only makes the Locker ask the store about the lock, at most once a second; the answer
// decides. A change may be missed while a connection breaks: then the next renewal shows it, as without this option.
// On Redis FLUSHALL and SWAPDB send no notification: the next renewal shows the loss.
//
// It costs a connection while locks are held. A lock that is held for more than 10 ms is renewed once more when the
// store begins to watch it. A lock under [WithoutRenewal] or [WithMaxRenewals], or kept unused by [WithSticky], is looked up
// instead, as by [Client.Inspect]. On Redis there are two commands more (SUBSCRIBE, UNSUBSCRIBE), and a message for each
// renewal. A lock that is held for less than 10 ms costs nothing. Permits are not watched. The strategies on Redis need
// keyspace notifications (notify-keyspace-events with K, g, $, x, e and h), which are off by default. It is refused with
// [ErrInvalid] and [errors.ErrUnsupported] if the driver is no [driver.LossDetector]. Default off.
func WithLossDetection() Option {
	return option(func(o *settings) { o.lossDetection = true })
}

// detection is the state of a Locker that detects losses; nil: the Locker does not. Its mutex may be locked under a stripe's, and
// locks no other.
type detection struct {
	e        *Client
	detector driver.LossDetector
	wake     wake.Signal // stale has elements

	mu      sync.Mutex
	held    map[string]*claim   // by key: what is to be watched
	stale   map[string]struct{} // keys whose claim the driver may not know
	over    chan struct{}       // closed when the goroutine has ended; nil: there is none
	useless bool                // the driver cannot
}

// detect sets up loss detection, if it is wanted.
func (e *Client) detect() error {
	if !e.set.lossDetection {
		return nil
	}
	d, ok := e.driver.(driver.LossDetector)
	if !ok {
		return &opError{strategy: e.name, op: "new", kind: ErrInvalid, why: errors.ErrUnsupported,
			hint: "WithLossDetection: this store does not show that a key was deleted; leave it out: the next renewal shows a loss"}
	}
	e.detection = &detection{e: e, detector: d, wake: wake.New(), held: make(map[string]*claim), stale: make(map[string]struct{})}
	return nil
}

// detect begins to watch the claim's key, where the Locker detects losses. It needs the mutex.
func (c *claim) detect() {
	if c.Limit == 0 {
		c.e.detection.set(c.Key, c)
	}
}

// undetect ends what detect has begun. It needs the mutex.
func (c *claim) undetect() {
	if c.Limit == 0 {
		c.e.detection.set(c.Key, nil)
	}
}

// set notes which claim holds key, nil for none, and sees to it that the driver learns of it. A claim has lost the key
// before the next claim is granted it.
func (d *detection) set(key string, c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.useless || d.e.closing.Load() {
		return
	}
	if d.held[key] = c; c == nil {
		delete(d.held, key)
	}
	d.stale[key] = struct{}{}
	if d.over == nil {
		d.over = make(chan struct{})
		go d.run(d.over)
	}
	d.rouse()
}

// rouse wakes the goroutine, which works through stale.
func (d *detection) rouse() { d.wake.Send() }

// done returns a channel that is closed when nothing runs; d may be nil.
func (d *detection) done() <-chan struct{} {
	if d == nil {
		return closedChan
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		return closedChan
	}
	return d.over
}

// end notes that the goroutine ends, if it may: nothing is held, or the driver cannot.
func (d *detection) end(useless bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.useless = d.useless || useless
	if len(d.held) > 0 && !d.useless && !d.e.closing.Load() {
		return false
	}
	clear(d.stale) // the next session knows of nothing
	if d.useless {
		clear(d.held)
	}
	d.over = nil
	return true
}

// run watches by the driver while something is held.
func (d *detection) run(over chan struct{}) {
	defer close(over)
	for warned := false; ; {
		opened := time.Now()
		err := d.session()
		if d.end(errors.Is(err, errors.ErrUnsupported)) {
			return
		}
		if err != nil && !warned {
			warned = true
			d.e.log.Warn("losses are not detected at once, and are noticed by the next renewal", "strategy", d.e.name, "err", err)
		}
		pause := listenAgain
		if driver.IsPermanent(err) {
			pause = listenRefused
		}
		bound.Sleep(d.e.life, nil, time.Until(opened.Add(pause)))
	}
}

// session opens a LossWatch and keeps it up to date. It returns when the LossWatch has ended, the Locker is closed, or
// nothing was held for a while.
func (d *detection) session() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = d.e.panicked("detecting losses", v)
		}
	}()
	w, err := d.open()
	if err != nil {
		return err
	}
	defer w.Close()
	known := make(map[string]*claim) // what the driver knows
	d.forget()
	idle := time.NewTimer(detectLinger)
	defer idle.Stop()
	for {
		select {
		case <-d.wake:
			if !bound.Sleep(d.e.life, w.Done(), detectAfter) {
				return nil
			}
			if err := d.tell(w, known); err != nil {
				return err
			}
			idle.Reset(detectLinger)
		case <-idle.C:
			if len(known) == 0 {
				return nil
			}
		case <-w.Done():
			return nil
		case <-d.e.closed:
			return nil
		}
	}
}

func (d *detection) open() (driver.LossWatch, error) {
	ctx, cancel := context.WithTimeout(d.e.life, listenTimeout)
	defer cancel()
	return d.detector.DetectLoss(ctx, d.e.heard)
}

// forget marks all held keys as stale, so that the driver is given them again.
func (d *detection) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.held {
		d.stale[key] = struct{}{}
	}
	d.rouse()
}

// tell passes to the driver which claims have come and gone. Then it asks the store about each claim that has
// come, as the key may have changed before the driver watched it: no change after the grant stays unnoticed.
func (d *detection) tell(w driver.LossWatch, known map[string]*claim) error {
	more, less := d.changes(known)
	if len(more)+len(less) == 0 {
		return nil
	}
	claims := make([]driver.Claim, len(more))
	for i, c := range more {
		claims[i] = c.Claim
	}
	ctx, cancel := context.WithTimeout(d.e.life, detectTimeout)
	defer cancel()
	if err := w.Watch(ctx, claims, less); err != nil {
		return err
	}
	for _, c := range more {
		c.verify()
	}
	return nil
}

// verify asks the store whether the claim holds its key. For a claim that is renewed by itself a renewal becomes
// due now: the Scheduler renews together what is due together. A claim without a lease is about to get one again.
func (c *claim) verify() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	switch {
	case c.state != claimHeld:
	case c.renews() && !c.inRenewal:
		c.next = c.e.sched.Now()
		c.schedule()
	default:
		c.doubt()
	}
}

// changes returns the claims that the driver does not know, and those that it has to forget. known holds what it
// knows then. Claims that are too young, as they came while the goroutine waited, have roused it once more.
func (d *detection) changes(known map[string]*claim) (more []*claim, less []driver.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.e.sched.Now() - detectAfter
	for key := range d.stale {
		want, have := d.held[key], known[key]
		if want != nil && want.firstTenure.granted > before {
			continue
		}
		if delete(d.stale, key); want == have {
			continue
		}
		if have != nil {
			less = append(less, have.Claim)
			delete(known, key)
		}
		if want != nil {
			more = append(more, want)
			known[key] = want
		}
	}
	return more, less
}
