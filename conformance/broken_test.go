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
)

// brokenStrategy is a strategy with one fault, and the cases that catch it.
type brokenStrategy struct {
	fake
	caught []string
}

var broken = map[string]brokenStrategy{
	// Exclusion.
	"grants a held key now and then": {acquiring(func() func(*counting, context.Context, driver.Request) (driver.Answer, error) {
		var n atomic.Int64
		return func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			if err == nil && !a.Granted && n.Add(1)%4 == 0 {
				d.locked(func() { delete(d.s.locks, req.Key) })
				return d.Acquire(ctx, req)
			}
			return a, err
		}
	}()), []string{"RefusedTryHasNoEffect", "NeverTwoInside", "CounterExact", "IntervalsDisjoint", "Linearizable", "MixedLockAndTryLock", "DoExcludes", "ProcessesContend"}},
	"releases some time later": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		go func() {
			time.Sleep(30 * time.Millisecond) // the bug: Unlock has returned by then
			_ = d.Release(context.Background(), c)
		}()
		return nil
	}), []string{"AcquireRelease", "FreeWhenUnlockReturns", "RapidCycles", "CancelledWhileUnlocking"}},
	"never releases": {releasing(func(*counting, context.Context, driver.Claim) error { return nil }),
		[]string{"AcquireRelease", "UnlockNeedsNoContext", "DoReleases", "EverybodyGetsATurn"}},
	"takes a refusal for trouble": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err == nil && !a.Granted {
			err = errors.New("it is held")
		}
		return a, err
	}), []string{"AcquireRelease", "WaitBoundIsNotAcquired", "CancelIsPrompt"}},

	"says that tokens are reserved": {acquiring(func() func(*counting, context.Context, driver.Request) (driver.Answer, error) {
		var last atomic.Int64 // a counter, since a clock would be ahead of the tokens that are handed out
		return func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			if a.Granted && req.Fencing {
				a.Token, a.Tokens = last.Add(1), req.Tokens
			}
			return a, err
		}
	}()), []string{"HandOversExclude", "TokenAfterHandOvers"}},

	// Ownership.
	"releases whatever is there": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() { d.s.drop(c.Key) })
		return nil
	}), []string{"ExpiredUnlockSparesSuccessor", "BrokenUnlockSparesSuccessor", "StolenUnlockSparesThief"}},
	"renews whatever is there": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() {
			if l := d.s.live(c.Key); l != nil {
				for id := range l.holds {
					l.extend(id, c.TTL)
				}
			}
		})
		return nil
	}), []string{"StolenRenewAddsNothing", "BreakIsNoticed", "StolenUnlockSparesThief"}},

	// The lease.
	"never expires": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = time.Hour
		return d.Acquire(ctx, req)
	}), []string{"Expires", "RenewAfterLoss", "TTLIsExact", "WakeByExpiry", "CloseLeavesKeysToTheTTL", "AnswersPastTheLease", "KilledAroundTheGrant", "FrozenAroundTheTTL"}},
	"expires early": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL /= 10
		return d.Acquire(ctx, req)
	}), []string{"Expires", "TTLIsExact", "WakeByExpiry"}},
	"counts TTLs in seconds": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = req.TTL.Truncate(time.Second) + time.Second
		return d.Acquire(ctx, req)
	}), []string{"TTLIsExact"}},
	"resurrects on renewal": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() {
			if d.held(c) == nil && d.s.live(c.Key) == nil {
				d.s.locks[c.Key] = &fakeLock{owner: c.Owner, holds: map[string]*fakeHold{c.ID: {1, time.Now().Add(c.TTL)}}, token: c.Token}
			}
		})
		return (&counted{counting: d}).renewOne(ctx, c)
	}), []string{"RenewalNeverResurrects", "RenewalAfterBrokenPredecessor", "StoreLosesEverything"}},
	"shortens on renewal": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := (&counted{counting: d}).renewOne(ctx, c)
		d.locked(func() {
			if l := d.held(c); l != nil {
				l.holds[c.ID].until = time.Now().Add(c.TTL / 10)
			}
		})
		return err
	}), []string{"AutoRenewHolds", "InnerNeverShortensStore", "ManyLeasesRenewed", "RenewedHolderKeepsWaitersOut"}},
	"shortens on re-entry": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			err := d.SetHolds(ctx, c, n)
			d.locked(func() {
				if l := d.held(c); l != nil {
					l.holds[c.ID].until = time.Now().Add(time.Second)
				}
			})
			return err
		}
	}), []string{"InnerNeverShortensStore"}},
	"renews nothing by itself": {options(locker.WithoutRenewal()), []string{"AutoRenewHolds", "InnerUnlockKeepsRenewal", "ManyLeasesRenewed", "LockContextIsForTheWait", "BreakIsNoticed"}},
	"asks for another TTL":     {lockingWith(locker.WithTTL(time.Hour)), []string{"LeaseDescribesItself", "LostAtDeadline", "LostIsKept", "ContextEndsByLoss", "AnswersPastTheLease"}},
	"hands out lost leases": {wrapping(wrapped{lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		lease, err := l.Lock(ctx, key, append(opts, locker.WithMaxHold(time.Millisecond))...)
		if err == nil {
			<-lease.Lost()
		}
		return lease, err
	}}), []string{"ContextEndsByUnlock", "ContextFollowsParent", "DoContextEnds", "LostIsNotUnlock", "LeaseDescribesItself"}},
	"knows no limits": {lockingWith(locker.WithMaxHold(time.Hour)), []string{"MaxHold", "MaxHoldStopsRenewal", "LimitsAsDefaults"}},
	"takes lost renewals for good": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		_ = (&counted{counting: d}).renewOne(ctx, c)
		return nil
	}), []string{"BreakIsNoticed", "StolenUnlockSparesThief", "RenewReplyLost", "CrashLosesEverything"}},
	"takes lost replies for loss": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		if (&counted{counting: d}).renewOne(ctx, c) != nil {
			return notHeld(c)
		}
		return nil
	}), []string{"RenewReplyLost", "RenewalRidesOutAnOutage", "SilenceWithinTheLease", "ConnectionsCut", "CrashKeepsEverything", "Full", "Stuck"}},

	// Re-entry.
	"gives everybody one owner": {changing(func(ctx context.Context) context.Context { return locker.ContextWithOwner(ctx, "me") }),
		[]string{"SameLockerExcludes", "OtherKeyIsTopLevel", "OtherCallerIsExcluded", "OwnersAreUnique", "OwnerIsTheNameGiven"}},
	"forgets who holds": {changing(func(ctx context.Context) context.Context { return noValues{ctx} }),
		[]string{"LeaseContextReenters", "DerivedContextReenters", "AncestorReenters", "ExplicitOwnerReenters", "OwnerIsTheNameGiven", "DoReenters"}},
	"counts holds up and down": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) (err error) {
			cerr := d.s.command(ctx, conformance.OpSetHolds, func() {
				l := d.held(c)
				switch {
				case l == nil:
					err = notHeld(c)
				case n > l.holds[c.ID].n:
					l.holds[c.ID].n++
				default:
					if l.holds[c.ID].n--; l.holds[c.ID].n == 0 {
						d.s.drop(c.Key)
					}
				}
			})
			return errors.Join(cerr, err)
		}
	}), []string{"ReentryTwice", "ReentryReplyLost"}},
	"frees the key with the first of two claims": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := d.Release(ctx, c)
		if err == nil {
			d.locked(func() { d.s.drop(c.Key) })
		}
		return err
	}), []string{"SharedOwnerAcrossLockers", "SharedOwnerCounts", "SharedOwnerAcrossProcesses"}},
	"claims stored holds": {claiming(fakeNotified, func(c *conformance.Capabilities) { c.StoredHolds = true }),
		[]string{"SharedOwnerAcrossLockers", "SharedOwnerCounts"}},
	"hides stored holds": {claiming(fakeCounting, func(c *conformance.Capabilities) { c.StoredHolds = false }),
		[]string{"OwnerIsExcludedElsewhere"}},

	// Waiting.
	"gives up early": {wrapping(wrapped{lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		return l.Lock(ctx, key, append(opts, locker.WithWait(50*time.Millisecond))...)
	}}), []string{"BlocksUntilUnlock", "UnboundedWaitUndoesTheDefault", "WaitBoundIsNotAcquired", "AutoRenewHolds"}},
	"waits in TryLock": {wrapping(wrapped{tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		return l.Lock(ctx, key, append(opts, locker.WithWait(time.Second))...)
	}}), []string{"TryLockDoesNotWait"}},
	"does not mind the context": {changing(context.WithoutCancel), []string{"CancelIsPrompt", "DeadlineMatchesBoth", "DeadContextGetsNothing", "CancelledWhileReentering"}},
	"serves in any order":       {looking(5 * time.Millisecond), []string{"FIFOWithinLocker", "TryLockFailsBehindTheQueue", "QueueSurvivesItsMembers"}},
	"looks every three seconds": {looking(3 * time.Second), []string{"LooksEverySecond", "WakesOneAfterAnother"}},
	"claims to be fair":         {claiming(fakeCounting, func(c *conformance.Capabilities) { c.Fair = true }), []string{"FIFOAcrossLockers"}},
	"loses every wake-up": {near(func(d *nearby) {
		d.watch = func(fullDriver, context.Context, string) (driver.Watch, error) { return deafWatch{}, nil }
	}), []string{"NotifiedWake"}},
	"is not notified again": {with(func(d *counted) { d.counting.stuck = true }), []string{"NotifiedAgain"}},
	"claims to be notified": {claiming(fakePolling, func(c *conformance.Capabilities) { c.Notified = true }), nil}, // polling at 10 to 100 ms is as good
	"hangs in Watch": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			<-time.After(2 * time.Second)
			return d.Watch(ctx, key)
		}
	}), []string{"CancelIsPrompt", "CancelledWaiterPassesOn"}},

	// Fencing.
	"repeats tokens": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		a.Token = min(a.Token, 7)
		return a, err
	}), []string{"TokensIncrease", "TokenAfterExpiry", "TokenAfterBreak", "StaleWriterIsRefused", "Linearizable"}},
	"counts tokens from 1": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		fencing := req.Fencing
		req.Fencing = false
		a, err := d.Acquire(ctx, req)
		if fencing && a.Granted {
			d.locked(func() {
				l := d.s.locks[req.Key]
				if l == nil { // a flush came in between
					l = &fakeLock{}
				}
				if l.token == 0 {
					d.s.tokens[req.Key]++
					l.token = d.s.tokens[req.Key]
				}
				a.Token = l.token
			})
		}
		return a, err
	}), []string{"TokenAfterDataLoss"}},
	"gives each process a token": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if a.Granted && req.Fencing {
			d.locked(func() { a.Token = d.s.token(req.Key) })
		}
		return a, err
	}), []string{"SharedOwnerAcrossLockers"}},
	"has tokens beyond 2^53": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		a.Token *= 1000
		return a, err
	}), []string{"TokensFitEverywhere"}},
	"issues tokens unasked": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.Fencing = true
		return d.Acquire(ctx, req)
	}), []string{"WithoutFencingIsZero", "WithoutFencingKeepsNothing"}},
	"claims fencing": {options(locker.WithoutFencing()), []string{"TokensIncrease", "TokensFitEverywhere", "TokenIsStable"}},
	"hides fencing":  {claiming(fakeCounting, func(c *conformance.Capabilities) { c.Fencing = false }), []string{"ZeroWithoutSupport"}},

	// Failure.
	"refuses a repeated acquisition": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (a driver.Answer, err error) {
		cerr := d.s.command(ctx, conformance.OpAcquire, func() {
			if d.held(req.Claim) != nil {
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
			return notHeld(c)
		}
		return nil
	}), []string{"ReleaseReplyLost", "UnlockUnreachable"}},
	"answers renewals at once": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		go func() { _ = (&counted{counting: d}).renewOne(context.WithoutCancel(ctx), c) }()
		return nil
	}), []string{"CancelledWhileRenewing", "BreakIsNoticed"}},
	"waits for wake-ups whatever happens": {near(func(d *nearby) {
		d.watch = func(d fullDriver, _ context.Context, key string) (driver.Watch, error) {
			return d.Watch(context.Background(), key)
		}
	}), []string{"CancelledWhileSubscribing"}},
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

	// Closing.
	"does not close": {wrapping(wrapped{close: func(locker.Locker) error { return nil }}),
		[]string{"CloseRefusesLocks", "CloseEndsLeases"}},
	"closes the store": {with(func(d *counted) {
		d.close = func(d *counting) error { d.locked(func() { clear(d.s.locks) }); return nil }
	}), []string{"CloseSparesOthers", "CloseEndsLeases", "CloseLeavesKeysToTheTTL"}},
	"cannot release after Close": {with(func(d *counted) {
		var closed atomic.Bool
		d.close = func(*counting) error { closed.Store(true); return nil }
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			if closed.Load() {
				return &driver.StoreError{Err: errors.New("closed"), Permanent: true}
			}
			return d.Release(ctx, c)
		}
	}), []string{"CloseEndsLeases"}},
	"fails to close twice": {wrapping(wrapped{close: func(l locker.Locker) error {
		_, err := l.TryLock(context.Background(), "probe", locker.WithTTL(time.Hour), locker.WithoutRenewal())
		if errors.Is(err, locker.ErrClosed) {
			return err
		}
		return l.Close()
	}}), []string{"CloseTwice"}},

	// Observers.
	"tells no observer": {options(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, _ locker.Event) {}))),
		[]string{"EventsAddUp", "EventsTell", "ReentryIsNoEvent", "MaxRenewals", "PanickingObserver", "SlowObserver"}},
	"is slow to renew": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		time.Sleep(2 * time.Second) // the bug
		return (&counted{counting: d}).renewOne(ctx, c)
	}), []string{"RenewalStopsAtUnlock", "CloseSparesOthers", "AutoRenewHolds"}},
}
