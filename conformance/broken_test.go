package conformance_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
)

// brokenStrategy is a strategy with one fault, and the cases that catch it.
type brokenStrategy struct {
	fake
	caught []string
}

// slowOnEveryMachine is more than the shortest upper bounds of selfTiming are where the
// suite's clock runs as slowly as it can, and more than leases last there.
const slowOnEveryMachine = 8 * time.Second

// broken are all of them but the strained ones.
var broken = func() map[string]brokenStrategy {
	all := maps.Clone(brokenLocks)
	maps.Copy(all, brokenStores)
	maps.Copy(all, brokenAdmins)
	maps.Copy(all, brokenSignals)
	maps.Copy(all, brokenCommands)
	maps.Copy(all, brokenWires)
	maps.Copy(all, brokenPermits)
	maps.Copy(all, brokenClaims)
	return all
}()

// brokenLocks break what is promised of locks while all is well.
var brokenLocks = map[string]brokenStrategy{
	// Exclusion.
	"grants a held key now and then": {acquiring(func() func(*counting, context.Context, driver.Request) (driver.Answer, error) {
		var n atomic.Int64
		return func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			if err == nil && !a.Granted && n.Add(1)%4 == 0 {
				d.locked(func() { delete(d.s.Locks, req.Key) })
				return d.Acquire(ctx, req)
			}
			return a, err
		}
	}()), []string{"RefusedTryHasNoEffect", "NeverTwoInside", "CounterExact", "IntervalsDisjoint", "Linearizable", "MixedLockAndTryLock", "DoExcludes"}},
	"grants every key": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err == nil && !a.Granted {
			d.locked(func() { delete(d.s.Locks, req.Key) })
			return d.Acquire(ctx, req)
		}
		return a, err
	}), []string{"AcquireRelease", "KeysTogetherExclude", "AllKeysOrNone", "WritersExclude", "ProcessesContend"}},
	"releases some time later": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		go func() {
			time.Sleep(500 * time.Millisecond) // the bug: Unlock has returned by then
			_ = d.Release(context.Background(), c)
		}()
		return nil
	}), []string{"AcquireRelease", "FreeWhenUnlockReturns", "RapidCycles", "CancelledWhileUnlocking"}},
	"never releases": {releasing(func(*counting, context.Context, driver.Claim) error { return nil }),
		[]string{"AllKeysOrNone", "ReadersShare", "AcquireRelease", "UnlockNeedsNoContext", "DoReleases", "EverybodyGetsATurn"}},
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
		d.locked(func() { d.s.Drop(c.Key) })
		return nil
		// Not ExpiredUnlockSparesSuccessor: the Locker's own release of what it lost comes before
		// the next owner's Lock or after it.
	}), []string{"OnlyTheHolder", "ExpiredIsLost", "BrokenUnlockSparesSuccessor", "StolenUnlockSparesThief"}},
	"renews whatever is there": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() {
			if l := d.s.Live(c.Key); l != nil {
				for _, claim := range l.Claims {
					claim.Extend(c.TTL)
				}
			}
		})
		return nil
	}), []string{"StolenRenewAddsNothing", "BreakIsNoticed", "StolenUnlockSparesThief"}},

	// The lease.
	"never expires": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = time.Hour
		return d.Acquire(ctx, req)
	}), []string{"PermitsComeBack", "Expires", "RenewAfterLoss", "TTLIsExact", "WakeByExpiry", "CloseLeavesKeysToTheTTL", "AnswersPastTheLease", "KilledAroundTheGrant", "FrozenAroundTheTTL"}},
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
			if d.s.Live(c.Key) == nil {
				d.s.Put(c.Key, c.Owner, c.ID, c.Token, c.TTL)
			}
		})
		return d.renewOne(ctx, c)
	}), []string{"RenewalNeverResurrects", "RenewalAfterBrokenPredecessor", "StoreLosesEverything"}},
	"shortens on renewal": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := d.renewOne(ctx, c)
		d.locked(func() {
			if _, held := d.s.Held(c); held != nil {
				held.Until = time.Now().Add(c.TTL / 10)
			}
		})
		return err
	}), []string{"AutoRenewHolds", "InnerNeverShortensStore", "ManyLeasesRenewed", "RenewedHolderKeepsWaitersOut"}},
	"shortens on re-entry": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			err := d.SetHolds(ctx, c, n)
			d.locked(func() {
				if _, held := d.s.Held(c); held != nil {
					held.Until = time.Now().Add(time.Second)
				}
			})
			return err
		}
	}), []string{"InnerNeverShortensStore"}},
	"renews nothing by itself": {options(locker.WithoutRenewal()), []string{"AutoRenewHolds", "InnerUnlockKeepsRenewal", "ManyLeasesRenewed", "LockContextIsForTheWait", "BreakIsNoticed", "HealthyIsNotAtRisk"}},
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
		_ = d.renewOne(ctx, c)
		return nil
	}), []string{"KeysLostTogether", "BreakIsNoticed", "StolenUnlockSparesThief", "RenewReplyLost", "CrashLosesEverything", "AtRiskBeforeLoss"}},
	"takes lost replies for loss": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		if d.renewOne(ctx, c) != nil {
			return locktable.ErrLost
		}
		return nil
	}), []string{"RenewReplyLost", "RenewalRidesOutAnOutage", "SilenceWithinTheLease", "ConnectionsCut", "CrashKeepsEverything", "Full", "Stuck", "AtRiskBeforeLoss"}},

	// Re-entry.
	"frees the key with an inner Unlock": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			return d.s.obey(ctx, conformance.OpSetHolds, func() error {
				_, held := d.s.Held(c)
				if held != nil && n < held.Holds {
					d.s.Drop(c.Key)
					return nil
				}
				return d.s.Table.SetHolds(c, n)
			})
		}
	}), []string{"ReentryTwice", "ConcurrentReentry", "ReadersShare"}},
	"gives everybody one owner": {changing(func(ctx context.Context) context.Context { return locker.ContextWithOwner(ctx, "me") }),
		[]string{"SameLockerExcludes", "OtherKeyIsTopLevel", "OtherCallerIsExcluded", "OwnersAreUnique", "OwnerIsTheNameGiven"}},
	"forgets who holds": {changing(func(ctx context.Context) context.Context { return noValues{ctx} }),
		[]string{"LeaseContextReenters", "DerivedContextReenters", "AncestorReenters", "ExplicitOwnerReenters", "OwnerIsTheNameGiven", "DoReenters"}},
	"counts holds up and down": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			return d.s.obey(ctx, conformance.OpSetHolds, func() error {
				_, held := d.s.Held(c)
				switch {
				case held == nil:
					return locktable.ErrLost
				case n > held.Holds:
					held.Holds++
				default:
					if held.Holds--; held.Holds == 0 {
						d.s.Drop(c.Key)
					}
				}
				return nil
			})
		}
	}), []string{"ReentryTwice", "ReentryReplyLost", "HoldsAreAbsolute"}},
	"frees the key with the first of two claims": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := d.Release(ctx, c)
		if err == nil {
			d.locked(func() { d.s.Drop(c.Key) })
		}
		return err
	}), []string{"ReadersOfLockersShare", "SharedOwnerAcrossLockers", "SharedOwnerCounts", "SharedOwnerAcrossProcesses"}},
	"lets others in beside a named owner": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err == nil && !a.Granted {
			d.locked(func() {
				if l := d.s.Live(req.Key); l != nil && l.Claim(l.Owner) == nil {
					l.Claims = append(l.Claims, &locktable.Claim{ID: req.ID, Holds: 1, Until: time.Now().Add(req.TTL)})
					a = driver.Answer{Granted: true, Token: l.Token}
				}
			})
		}
		return a, err
	}), []string{"SharedOwnerAcrossLockers", "ReadersShare", "ReadersOfLockersShare", "WritersExclude"}},
	"shortens the shares of others": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if a.Granted {
			d.locked(func() {
				if l, _ := d.s.Held(req.Claim); l != nil {
					for _, claim := range l.Claims {
						claim.Until = time.Now().Add(req.TTL)
					}
				}
			})
		}
		return a, err
	}), []string{"SharesEndApart"}},
	"repeats the token of a shared hold": {acquiring(func() func(*counting, context.Context, driver.Request) (driver.Answer, error) {
		var mu sync.Mutex
		shared := map[string]int64{}
		return func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.Granted && req.Owner != req.ID:
				shared[req.Key] = a.Token
			case a.Granted && shared[req.Key] != 0:
				a.Token = shared[req.Key]
			}
			return a, err
		}
	}()), []string{"ReadersOfLockersShare"}},
	"claims stored holds": {claiming(fakeNotified, func(c *conformance.Capabilities) { c.StoredHolds = true }),
		[]string{"ReadersOfLockersShare", "SharedOwnerAcrossLockers", "SharedOwnerCounts"}},
	"hides stored holds": {claiming(fakeCounting, func(c *conformance.Capabilities) { c.StoredHolds = false }),
		[]string{"ReadersOfLockersTakeTurns", "OwnerIsExcludedElsewhere"}},

	// Waiting.
	"gives up early": {wrapping(wrapped{lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		return l.Lock(ctx, key, append(opts, locker.WithWait(50*time.Millisecond))...)
	}}), []string{"BlocksUntilUnlock", "UnboundedWaitUndoesTheDefault", "WaitBoundIsNotAcquired", "AutoRenewHolds"}},
	"waits in TryLock": {wrapping(wrapped{tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		return l.Lock(ctx, key, append(opts, locker.WithWait(slowOnEveryMachine))...)
	}}), []string{"TryLockDoesNotWait"}},
	"does not mind the context": {changing(context.WithoutCancel), []string{"CancelIsPrompt", "DeadlineMatchesBoth", "DeadContextGetsNothing", "CancelledWhileReentering"}},
	"serves the last first":     {lastFirst(), []string{"FIFOWithinLocker", "TryLockFailsBehindTheQueue", "QueueSurvivesItsMembers"}},
	"hardly ever looks":         {looking(20 * time.Second), []string{"LooksEverySecond", "WakesOneAfterAnother"}},
	"claims to be fair":         {claiming(fakeCounting, func(c *conformance.Capabilities) { c.Fair = true }), []string{"FIFOAcrossLockers"}},
	"loses every wake-up": {near(func(d *nearby) {
		d.watch = func(fullDriver, context.Context, string) (driver.Watch, error) { return deafWatch{}, nil }
	}), []string{"NotifiedWake", "NoMissedWakeup", "CancelledWaiterPassesOn", "GivesUpRightAfterASuccess"}},
	"is deaf when a Watch begins": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			// The bug: Watch has returned by then. It lasts longer than a round trip to any store, so that it shows on a busy machine.
			return passSome(w, make(chan struct{}, 1), func() bool { return time.Since(begun) > 200*time.Millisecond }), nil
		}
	}), []string{"NoMissedWakeup", "WatchSignals"}},
	"is not notified again": {with(func(d *counted) { d.counting.stuck = true }), []string{"NotifiedAgain"}},
	"claims to be notified": {claiming(fakePolling, func(c *conformance.Capabilities) { c.Notified = true }), []string{"WatchSignals"}}, // polling at 10 to 100 ms is as good for callers
	"hangs in Watch": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			<-time.After(slowOnEveryMachine)
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
				l := d.s.Locks[req.Key]
				if l == nil { // a flush came in between
					l = &locktable.Lock{}
				}
				if l.Token == 0 {
					d.s.tokens[req.Key]++
					l.Token = d.s.tokens[req.Key]
				}
				a.Token = l.Token
			})
		}
		return a, err
	}), []string{"TokenAfterDataLoss"}},
	"gives each process a token": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if a.Granted && req.Fencing {
			d.locked(func() { a.Token, _ = d.s.token(req.Key, 1) })
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
}
