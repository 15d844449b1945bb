package locker

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
	"github.com/distlock/locker/internal/uuid"
	"github.com/distlock/locker/internal/wake"
	"github.com/distlock/locker/renewal"
)

const (
	// commandTimeout bounds a manual renewal and an operator's command. An attempt and a re-entry's count are
	// bounded by the TTL, too, if that is shorter.
	commandTimeout = 4 * time.Second
	releaseTimeout = 2 * time.Second        // one try of a release
	releaseBudget  = 5 * time.Second        // all tries of an Unlock
	closeBudget    = 3 * time.Second        // for what runs at Close to end by itself
	closeGrace     = 300 * time.Millisecond // once it is cut short
	driverGrace    = time.Second            // for the driver to close, beside the rest of the two above

	outagePauseMin = 20 * time.Millisecond
	outagePauseMax = 500 * time.Millisecond
	minOutage      = 15 * time.Second
	answerSoon     = 200 * time.Millisecond
	answerLate     = time.Second
	watchTimeout   = time.Second
)

// Client is the [Locker] that [New] makes of a driver. Beside Lock, TryLock and Close it has methods
// that show locks and take them away. A program that only locks needs no more than the interface:
//
//	holder, err := client.Inspect(ctx, "deploy")
//
// A Client is safe for use by many goroutines. Its zero value is not usable.
type Client struct {
	driver    driver.Driver
	counter   driver.HoldCounter // or nil
	notifier  driver.Notifier    // or nil
	sharder   driver.Sharder     // or nil
	signaller driver.Signaller   // or nil

	name     string
	idPrefix string // of claim ids
	set      settings
	notices  notices
	log      *slog.Logger // through notices
	sched    *renewal.Scheduler[*claim]
	backlogs backlogs

	claims     atomic.Uint64
	seed       maphash.Seed
	stripes    [64]stripe
	listening  listening
	detection  *detection   // nil: losses are not detected
	background *retry.Queue // releases and clean-ups whose callers have returned

	closing atomic.Bool
	life    context.Context // ends with Close
	close   context.CancelFunc
	closed  <-chan struct{} // life's
	ended   chan struct{}   // closed when the first Close is through

	unobserved func() // called when the Locker is closed
}

var _ Locker = (*Client)(nil)

// New makes a Locker of a driver; the New of a strategy package calls it. It
// fails with [ErrInvalid] on bad options. The Locker's Close closes the driver.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, invalid("New needs a driver")
	}
	if d.Name() == "" {
		return nil, invalid("the driver %T has no name", d)
	}
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	e := &Client{
		driver: d,
		name:   d.Name(),
		set:    set,
		seed:   maphash.MakeSeed(),
		ended:  make(chan struct{}),

		listening: listening{none: wake.New()},
	}
	e.life, e.close = context.WithCancel(context.Background())
	e.closed = e.life.Done()
	e.background = retry.NewQueue(retry.Config{
		Now:       func() time.Duration { return e.sched.Now() },
		Closing:   e.closed,
		Timeout:   releaseTimeout,
		Permanent: driver.IsPermanent,
		Panicked:  func(v any) error { return e.panicked("releasing in the background", v) },
	})
	e.observe()
	if set.logger != nil {
		e.notices.handler = set.logger.Handler()
	}
	e.notices.wanted = e.notices.observer != nil || e.notices.handler != nil
	e.log = e.notices.logger()
	e.counter, _ = d.(driver.HoldCounter)
	e.notifier, _ = d.(driver.Notifier)
	e.sharder, _ = d.(driver.Sharder)
	e.signaller, _ = d.(driver.Signaller)
	cfg := renewal.Config[*claim]{Ended: e.expired, Renew: e.renewDue, MaxBatch: renewBatchSize}
	if e.sharder != nil {
		cfg.Shard = func(c *claim) string { return e.sharder.Shard(c.Key) }
	}
	e.sched = renewal.New(cfg)
	for i := range e.stripes {
		e.stripes[i].keys = make(map[string]*keyState)
	}
	err = e.detect()
	if err == nil {
		err = e.configure()
	}
	if err != nil {
		e.unobserved()
		return nil, err
	}
	return e, nil
}

// configure hands the driver its configuration, and takes its settings.
func (e *Client) configure() error {
	version, mark := 4, uint16(0)
	if c, ok := e.driver.(driver.Configurer); ok {
		s, err := c.Configure(driver.Config{Logger: e.log, Options: e.set.driverOptions, Prefix: e.set.prefix, NodeChanged: e.nodeChanged, NewID: e.newID})
		if err != nil {
			return err
		}
		if s.IDVersion != 0 {
			version = s.IDVersion
		}
		mark = s.IDMark & 0xfff
		if err := e.setSticky(s); err != nil {
			return err
		}
	} else if err := e.setSticky(driver.Settings{}); err != nil {
		return err
	} else if len(e.set.driverOptions) > 0 {
		return invalid("%s takes no driver options, but was given %T", e.name, e.set.driverOptions[0])
	}
	e.idPrefix = uuid.Marked(version, mark) + ":"
	return nil
}

// Wrapper is implemented by a Locker that wraps another, which Unwrap returns. For [LockAll], [Semaphore] and
// [RWLock] its Lock and TryLock pass contexts and options on to the wrapped Locker.
type Wrapper interface {
	Unwrap() Locker
}

// ClientOf returns the Client that l is or wraps: l itself, or the first one that Unwrap of
// the Lockers in l leads to; see [Wrapper]. It reports false if there is none.
func ClientOf(l Locker) (*Client, bool) {
	for l != nil {
		if c, ok := l.(*Client); ok {
			return c, c != nil
		}
		w, ok := l.(Wrapper)
		if !ok {
			break
		}
		l = w.Unwrap()
	}
	return nil, false
}

// nodeChanged reports the trouble, or the return, of one server of several.
func (e *Client) nodeChanged(name string, trouble error) {
	e.notices.event(context.Background(), Event{Kind: EventNode, Strategy: e.name, Node: name, Err: trouble})
}

// Close refuses new Locks and ends the leases; see [Locker] for its rules.
func (e *Client) Close() error {
	if !e.closing.CompareAndSwap(false, true) {
		<-e.ended
		return nil
	}
	defer close(e.ended)
	end := time.Now().Add(closeBudget)
	e.close()
	var after aftermath
	var unclaimed []*claim
	for i := range e.stripes {
		a, u := e.stripes[i].close()
		after, unclaimed = append(after, a...), append(unclaimed, u...)
	}
	after.run()
	for _, c := range unclaimed {
		c.freeUnclaimed()
	}
	e.sched.Close()
	e.awaitWork(end)
	e.background.Stop()
	e.awaitWork(end.Add(closeGrace))
	// The process may have been stopped until long after end.
	err := e.closeDriver(max(driverGrace, time.Until(end.Add(closeGrace+driverGrace))))
	e.notices.close(end.Add(closeGrace + driverGrace + noticesGrace))
	e.unobserved()
	if err != nil {
		return &opError{strategy: e.name, op: "close", kind: ErrUnavailable, why: err}
	}
	return nil
}

// awaitWork waits until nothing runs, but not beyond end.
func (e *Client) awaitWork(end time.Time) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	await := func(done <-chan struct{}) {
		select {
		case <-done:
		case <-timer.C:
			timer.Reset(0) // for those that follow
		}
	}
	for i := range e.stripes {
		await(e.stripes[i].done())
	}
	await(e.listening.done())
	await(e.detection.done())
	await(e.background.Done())
	await(e.sched.Done())
}

// closeDriver closes the watches that linger, and the driver. A driver that takes
// longer than d is left to it.
func (e *Client) closeDriver(d time.Duration) error {
	done := make(chan error, 1)
	go func() {
		for i := range e.stripes {
			e.stripes[i].closeWatches()
		}
		done <- e.driver.Close()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errors.New("the driver is still closing")
	}
}

// userKey returns key as the user gave it, without the prefix.
func (e *Client) userKey(key string) string { return key[len(e.set.prefix):] }
