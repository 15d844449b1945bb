package locker

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/renewal"
)

const (
	// commandTimeout bounds one command to the store, and so what is left
	// running when a caller leaves it behind: less than Close's 5 s.
	commandTimeout = 4 * time.Second
	releaseTimeout = 2 * time.Second         // one try of a release
	releaseBudget  = 5 * time.Second         // all tries
	closeBudget    = 4300 * time.Millisecond // for what runs at Close to end by itself
	closeGrace     = 300 * time.Millisecond  // once it is cut short
	cleanUpAgain   = time.Second

	// A wait that is signalled still looks about once a second; one that is
	// not polls.
	signalledPause = time.Second
	pollMin        = 10 * time.Millisecond
	pollMax        = 100 * time.Millisecond
	outagePauseMin = 20 * time.Millisecond
	outagePauseMax = 500 * time.Millisecond
	minOutage      = 15 * time.Second
	answerSoon     = 200 * time.Millisecond
	answerLate     = time.Second
	watchTimeout   = time.Second
	watchLinger    = time.Second
)

// engine makes a Locker of a driver.
type engine struct {
	driver   Driver
	counter  HoldCounter // or nil
	notifier Notifier    // or nil
	sharder  Sharder     // or nil

	name   string
	id     string
	set    settings
	log    *slog.Logger
	events *events
	sched  *renewal.Scheduler[*claim]

	claims atomic.Uint64
	seed   maphash.Seed
	shards [64]shard

	work   tracker
	base   context.Context // of clean-ups; ends when Close has waited long enough
	stop   context.CancelFunc
	closed chan struct{}
	ended  chan struct{} // closed when the first Close is through
}

var _ Locker = (*engine)(nil)

// New makes a Locker of a driver; the New of a strategy package calls it. It
// fails with [ErrInvalid] on bad options. The Locker's Close closes the driver.
func New(d Driver, opts ...Option) (Locker, error) {
	if d == nil {
		return nil, invalid("New needs a driver")
	}
	e := &engine{
		driver: d,
		name:   d.Name(),
		set:    settings{call: callSettings{ttl: DefaultTTL}, logger: slog.New(slog.DiscardHandler)},
		seed:   maphash.MakeSeed(),
		closed: make(chan struct{}),
		ended:  make(chan struct{}),
	}
	e.base, e.stop = context.WithCancel(context.Background())
	e.id = newUUID(4)
	if b, ok := d.(Branded); ok {
		e.id = newUUID(b.Brand())
	}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("an option is nil")
		}
		o.apply(&e.set)
	}
	if err := errors.Join(e.set.err, e.set.call.err); err != nil {
		return nil, err
	}
	if err := e.checkInterval(&e.set.call); err != nil {
		return nil, err
	}
	e.log = e.set.logger
	e.events = &events{to: e.set.observer, log: e.log, work: &e.work}
	e.counter, _ = d.(HoldCounter)
	e.notifier, _ = d.(Notifier)
	e.sharder, _ = d.(Sharder)
	e.sched = renewal.New(renewal.Config[*claim]{
		Renew: e.renewBatch,
		Final: func(err error) bool { return errors.Is(err, ErrLost) },
		Lost:  (*claim).lose,
		Renewed: func(c *claim, took time.Duration) {
			if e.set.observer != nil {
				e.events.later(c.event(EventRenewed, took, nil))
			}
		},
		Failed: func(c *claim, err error, took time.Duration) {
			e.log.Warn("renewal failed, trying again", "strategy", e.name, "key", c.userKey, "deadline", c.deadline(), "err", err)
			if e.set.observer != nil {
				e.events.later(c.event(EventRenewFailed, took, err))
			}
		},
	})
	for i := range e.shards {
		e.shards[i].keys = make(map[string]*keyState)
	}
	cfg := DriverConfig{LockerID: e.id, Logger: e.log, Options: e.set.driverOptions}
	if c, ok := d.(Configurer); ok {
		if err := c.Configure(cfg); err != nil {
			return nil, err
		}
	} else if len(cfg.Options) > 0 {
		return nil, invalid("%s takes no driver options, but was given %T", e.name, cfg.Options[0])
	}
	return e, nil
}

func (e *engine) checkInterval(c *callSettings) error {
	if i := e.set.renewInterval; i >= validityOf(c.ttl) && !c.noRenewal {
		return invalid("WithRenewInterval(%v) is too long for a TTL of %v: the lease would end before its first renewal", i, c.ttl)
	}
	return nil
}

// validityOf is how long a lease lasts for its holder: less than in the store, in
// case its clock is faster.
func validityOf(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

func (e *engine) renewBatch(ctx context.Context, _ string, batch []*claim, answer func(int, error)) {
	claims := make([]Claim, len(batch))
	for i, c := range batch {
		claims[i] = c.Claim
	}
	e.driver.Renew(ctx, claims, answer)
}

// Lock implements [Locker].
func (e *engine) Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	return e.start(ctx, key, false, opts)
}

// TryLock implements [Locker].
func (e *engine) TryLock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	return e.start(ctx, key, true, opts)
}

// Close implements [Locker].
func (e *engine) Close() error {
	if !e.work.close() {
		<-e.ended
		return nil
	}
	defer close(e.ended)
	close(e.closed)
	for _, c := range e.sched.Close() {
		c.lose(ErrClosed)
	}
	e.finish(closeBudget)
	e.stop()
	e.finish(closeGrace)
	for i := range e.shards {
		e.shards[i].closeWatches()
	}
	if err := e.driver.Close(); err != nil {
		return &opError{strategy: e.name, op: "close", kind: ErrUnavailable, why: err}
	}
	return nil
}

// finish waits until nothing runs, at most d.
func (e *engine) finish(d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	for _, done := range []<-chan struct{}{e.work.done(), e.sched.Done()} {
		select {
		case <-done:
		case <-end.C:
			return
		}
	}
}

func (e *engine) shardOf(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}

// newClaim names a new grant-to-be. Its id was never used and never will be.
func (e *engine) newClaim(key, owner string, ttl time.Duration) Claim {
	id := e.id + ":" + strconv.FormatUint(e.claims.Add(1), 10)
	if owner == "" {
		owner = id
	}
	return Claim{Key: key, ID: id, Owner: owner, TTL: ttl}
}

// retry repeats one command of a release until it has a definite answer or ctx
// is over.
func (e *engine) retry(ctx context.Context, f func(context.Context) error) error {
	var pause backoff
	for {
		once, cancel := context.WithTimeout(ctx, releaseTimeout)
		err := f(once)
		cancel()
		if err == nil || errors.Is(err, ErrLost) || isPermanent(err) || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, nil, pause.next(outagePauseMin, outagePauseMax)) {
			return err
		}
	}
}

// cleanUp frees what an attempt without a definite answer may have got. A
// command that hung in a broken connection may reach the store after the
// clean-up on another, so one that found nothing is repeated once.
func (e *engine) cleanUp(c Claim, definite bool) {
	e.work.beginAlways()
	defer e.work.end()
	release := func() error {
		ctx, cancel := context.WithTimeout(e.base, releaseBudget)
		defer cancel()
		return e.retry(ctx, func(ctx context.Context) error { return e.driver.Release(ctx, c) })
	}
	err := release()
	if errors.Is(err, ErrLost) && !definite && sleep(context.Background(), e.closed, cleanUpAgain) {
		err = release()
	}
	if err != nil && !errors.Is(err, ErrLost) {
		e.log.Warn("clean-up after an attempt without an answer failed; the TTL frees the key", "strategy", e.name, "key", c.Key, "err", err)
	}
}

// detached runs f on a context that outlives ctx (it keeps the values) for at
// most d. When ctx ends before f does, or the Locker is closed, the caller is told left = true at once,
// and orphan, if any, gets f's result later.
func detached[T any](ctx context.Context, e *engine, d time.Duration, f func(context.Context) T, orphan func(T)) (result T, left bool) {
	run := func() T {
		fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
		defer cancel()
		return f(fctx)
	}
	if ctx.Done() == nil {
		return run(), false
	}
	var taken atomic.Bool
	done := make(chan T, 1)
	e.work.beginAlways()
	go func() {
		defer e.work.end()
		r := run()
		if taken.CompareAndSwap(false, true) {
			done <- r
		} else if orphan != nil {
			orphan(r)
		}
	}()
	select {
	case r := <-done:
		return r, false
	case <-ctx.Done():
	case <-e.closed:
	}
	if taken.CompareAndSwap(false, true) {
		return result, true
	}
	return <-done, false
}

// sleep waits for d and reports true, or false when ctx or stop ended it.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}

// backoff doubles from least to most, with full jitter above least.
type backoff struct{ cur time.Duration }

func (b *backoff) next(least, most time.Duration) time.Duration {
	b.cur = min(max(2*b.cur, 2*least), most)
	return least + rand.N(b.cur-least+1)
}

// shard is a part of the table of keys, with the lock for it.
type shard struct {
	mu   sync.Mutex
	keys map[string]*keyState
}
