package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
)

// brokenStores break what is promised of trouble, names, what is left behind, and ends.
var brokenStores = map[string]brokenStrategy{
	// Failure.
	"refuses a repeated acquisition": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (a driver.Answer, err error) {
		cerr := d.s.command(ctx, conformance.OpAcquire, func() {
			if _, held := d.s.Held(req.Claim); held != nil {
				a = driver.Answer{}
				return
			}
			a, err = d.fakeDriver.acquire(req)
		})
		return a, errors.Join(cerr, err)
	}), []string{"AcquireTwice"}},
	"takes a lost reply for a refusal": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err != nil && ctx.Err() == nil {
			return driver.Answer{}, nil
		}
		return a, err
	}), []string{"TryLockReplyLost"}},
	"takes a lost reply for not applied": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err != nil {
			err = &driver.StoreError{Err: err, NotApplied: true}
		}
		return a, err
	}), []string{"TryLockReplyLost"}},
	"takes an outage for good": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err != nil && ctx.Err() == nil {
			err = &driver.StoreError{Err: err, Permanent: true}
		}
		return a, err
	}), []string{"LockRidesOutAnOutage", "AcquireReplyLost", "WaitersSurviveAnOutage", "Starting"}},
	"takes an outage for a refusal": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err != nil {
			return driver.Answer{}, nil
		}
		return a, err
	}), []string{"TryLockUnreachable", "OutageEndsTheWait", "OutageHasALimit", "Starting"}},
	"takes a lost reply for a release": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		if err := d.Release(ctx, c); errors.Is(err, locker.ErrLost) {
			return err
		}
		return nil
	}), []string{"UnlockUnreachable", "UnlockUnreachableWithoutContext", "CommandLost"}},
	"takes a lost reply for a lost lock": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		if d.Release(ctx, c) != nil {
			return locktable.ErrLost
		}
		return nil
	}), []string{"ReleaseReplyLost", "UnlockUnreachable"}},
	"answers renewals at once": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		go func() { _ = d.renewOne(context.WithoutCancel(ctx), c) }()
		return nil
	}), []string{"CancelledWhileRenewing", "BreakIsNoticed"}},
	"waits for wake-ups whatever happens": {near(func(d *nearby) {
		d.watch = func(d fullDriver, _ context.Context, key string) (driver.Watch, error) {
			return d.Watch(context.Background(), key)
		}
	}), []string{"CancelledWhileSubscribing", "FrozenWatchEnds"}},
	"rides out what needs a person": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		var refined *driver.StoreError
		if errors.As(err, &refined) {
			err = &driver.StoreError{Err: refined.Err, NotApplied: refined.NotApplied}
		}
		return a, err
	}), []string{"Full"}},
	"keeps the store's words to itself": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		var refined *driver.StoreError
		if errors.As(err, &refined) {
			err = &driver.StoreError{Err: errors.New("it failed"), Permanent: refined.Permanent, NotApplied: refined.NotApplied}
		}
		return a, err
	}), []string{"Full", "Starting"}},
	"needs its scripts": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		forgot := false
		d.locked(func() { forgot = d.s.forgot })
		if forgot {
			return &driver.StoreError{Err: errors.New("NOSCRIPT"), Permanent: true, NotApplied: true}
		}
		return d.Release(ctx, c)
	}), []string{"ScriptsForgotten"}},

	// Keys.
	"ignores case":     {renaming(strings.ToLower), []string{"KeysAreIndependent"}},
	"cuts keys at NUL": {renaming(func(k string) string { k, _, _ = strings.Cut(k, "\x00"); return k }), []string{"HostileKeys"}},
	"trims keys":       {renaming(strings.TrimSpace), []string{"KeysAreIndependent"}},
	"cuts long keys":   {renaming(func(k string) string { return k[:min(len(k), 1000)] }), []string{"HostileKeys"}},
	"drops prefixes": {renaming(func(k string) string { return k[strings.LastIndexByte(k, ':')+1:] }),
		[]string{"PrefixesAreApart", "PrefixInStore"}},
	"takes foreign locks": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		d.locked(func() { delete(d.s.foreign, req.Key) })
		return d.Acquire(ctx, req)
	}), []string{"ForeignLocksAreHeld", "ForeignThingsConflict"}},
	"waits for foreign things": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if errors.Is(err, locker.ErrConflict) {
			return driver.Answer{}, nil
		}
		return a, err
	}), []string{"ForeignThingsConflict"}},
	"takes any driver option": {near(func(d *nearby) {
		d.configure = func(d fullDriver, c driver.Config) (driver.Settings, error) {
			c.Options = nil
			return d.Configure(c)
		}
	}), []string{"BadConstructorOptions"}},
	"lets bad calls pass": {failing(func(err error) error {
		if errors.Is(err, locker.ErrInvalid) {
			return locker.ErrNotAcquired
		}
		return err
	}), []string{"BadKeys", "BadCallOptions", "BadOwnerIsInvalid"}},

	// Hygiene.
	"leaves keys for ever": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		d.locked(func() { d.s.garbage[req.Key+":garbage"] = -1 })
		return d.Acquire(ctx, req)
	}), []string{"KeysEndWithLocks", "TokenKeyExpires", "WithoutFencingKeepsNothing"}},
	"leaves a session with each repeated acquisition": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (a driver.Answer, err error) {
		cerr := d.s.command(ctx, conformance.OpAcquire, func() {
			if _, held := d.s.Held(req.Claim); held != nil {
				d.s.garbage["session of "+req.ID] = time.Hour
			}
			a, err = d.fakeDriver.acquire(req)
		})
		return a, errors.Join(cerr, err)
	}), []string{"AcquireTwice"}},
	"leaves a key for each waiter": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if !a.Granted && req.Wait {
			d.locked(func() { d.s.garbage[req.ID] = time.Hour })
		}
		return a, err
	}), []string{"CancelledWaiterLeavesNothing", "KeysEndWithLocks", "SignalsDoNotPileUp"}},
	"leaves goroutines": {near(func(d *nearby) {
		end := make(chan struct{})
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			go func() { <-end }()
			return d.Acquire(ctx, req)
		}
		d.close = func(d fullDriver) error { close(end); return d.Close() }
	}), []string{"GoroutinesEndWithLocks"}},
	"leaves goroutines after Close": {near(func(*nearby) { go func() { select {} }() }), []string{"GoroutinesEndWithClose"}},
	"remembers keys": {near(func(d *nearby) {
		var mu sync.Mutex
		keys := map[string]bool{}
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			mu.Lock()
			keys[req.Key] = true
			mu.Unlock()
			return d.Acquire(ctx, req)
		}
	}), []string{"LocalStateIsBounded"}},

	"remembers claims": {near(func(d *nearby) {
		var mu sync.Mutex
		ids := map[string]bool{}
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			mu.Lock()
			ids[req.ID] = true
			mu.Unlock()
			return d.Acquire(ctx, req)
		}
	}), []string{"LocalStateIsBounded"}},

	// Closing.
	"does not close": {wrapping(wrapped{close: func(locker.Locker) error { return nil }}),
		[]string{"CloseRefusesLocks", "CloseEndsLeases"}},
	"closes the store": {with(func(d *counted) {
		d.close = func(d *counting) error { d.locked(func() { clear(d.s.Locks) }); return nil }
	}), []string{"CloseSparesOthers", "CloseEndsLeases", "CloseLeavesKeysToTheTTL", "ClosedDriverReleases"}},
	"cannot release after Close": {with(func(d *counted) {
		var closed atomic.Bool
		d.close = func(*counting) error { closed.Store(true); return nil }
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			if closed.Load() {
				return &driver.StoreError{Err: errors.New("closed"), Permanent: true}
			}
			return d.Release(ctx, c)
		}
	}), []string{"CloseEndsLeases", "ClosedDriverReleases"}},
	"fails to close twice": {wrapping(wrapped{close: func(l locker.Locker) error {
		_, err := l.TryLock(context.Background(), "probe", locker.WithTTL(time.Hour), locker.WithoutRenewal())
		if errors.Is(err, locker.ErrClosed) {
			return err
		}
		return l.Close()
	}}), []string{"CloseTwice"}},

	// Observers.
	"calls no observer": {options(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, _ locker.Event) {}))),
		[]string{"EventsAddUp", "EventsTell", "ReentryIsNoEvent", "MaxRenewals", "PanickingObserver", "SlowObserver"}},
	"is slow to renew": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		time.Sleep(slowOnEveryMachine) // the bug
		return d.renewOne(ctx, c)
	}), []string{"RenewalStopsAtUnlock", "AutoRenewHolds"}},
}
