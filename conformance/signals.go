package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

var signalCases = group("signals", []Case{
	{Name: "RequestArrives", Rules: []string{"R27"}, Needs: Capabilities{Signals: true}, Test: testRequestArrives,
		Contract: "RequestRelease of another Locker closes ReleaseRequested of all leases on that acquisition, whatever the key, and of no others, and takes nothing away"},
	{Name: "RequestArrivesAfterCut", Rules: []string{"R27"}, Needs: Capabilities{Signals: true, Faults: true}, Isolated: true, Test: testRequestArrivesAfterCut,
		Contract: "after notifications were cut and came back a repeated request arrives"},
	{Name: "RequestIsOfItsTime", Rules: []string{"R27"}, Needs: Capabilities{Signals: true}, Test: testRequestIsOfItsTime,
		Contract: "a request is for the present holder: the one after it knows nothing of it"},
	{Name: "ForceUnlockArrives", Rules: []string{"R27"}, Needs: Capabilities{Signals: true}, Test: testForceUnlockArrives,
		Contract: "after ForceUnlock Lost of a holder that listens closes long before its next renewal"},
	{Name: "OddSignalsBreakNothing", Rules: []string{"R10", "R27"}, Needs: Capabilities{Signals: true, Drivers: true}, Test: testOddSignalsBreakNothing,
		Contract: "signals that are late, repeated, forged or of an unknown kind take nothing away, and a true one after them arrives"},
	{Name: "ChangedKeyIsNoticed", Rules: []string{"R27"}, Needs: Capabilities{LossDetection: true, Break: true}, Test: testChangedKeyIsNoticed,
		Contract: "with WithLossDetection Lost closes long before the next renewal when a key is deleted, ends, or gets another holder, at once after the grant or later, whatever the key"},
	{Name: "DetectionAsksSeldom", Rules: []string{"R2", "R27"}, Needs: Capabilities{LossDetection: true, Faults: true}, Isolated: true, Counts: true, Test: testDetectionAsksSeldom,
		Contract: "with WithLossDetection renewals, re-entry, hand-overs and releases of the holder's own raise no question, and a lock that is given back at once costs no command more"},
	{Name: "SignalOfNoClaimIsInvalid", Rules: []string{"R27"}, Needs: Capabilities{Signals: true, Drivers: true}, Test: testSignalOfNoClaimIsInvalid,
		Contract: "a Signal about what is no claim of a Locker is ErrInvalid"},
	{Name: "AtRiskBeforeLoss", Rules: []string{"R26"}, Needs: Capabilities{Faults: true}, Isolated: true, Locker: true, Test: testAtRiskBeforeLoss,
		Contract: "while the store cannot be reached AtRisk closes a third of the TTL before the Deadline at the latest, and not before renewals have failed; a lease that recovers stays held"},
	{Name: "HealthyIsNotAtRisk", Rules: []string{"R26"}, Locker: true, Test: testHealthyIsNotAtRisk,
		Contract: "a lease that is renewed in time is not at risk, with a margin, too"},
	{Name: "MarginKeepsOthersOut", Rules: []string{"R25"}, Test: testMarginKeepsOthersOut,
		Contract: "with a margin nobody else is granted the key for as long after the holder's Deadline, also if the holder unlocks what it has lost"},
})

// heardTTL is the TTL of leases that a signal ends: long enough that a renewal a third of it later
// is no signal.
const heardTTL = 5 * time.Minute

// requests asks the holder of key for the release.
func (t *T) requests(by locker.Locker, key string) {
	t.Helper()
	t.NoError(t.admin(by).RequestRelease(t.Context(), key), "RequestRelease")
}

// signaller returns a driver of its own.
func (t *T) signaller() driver.Signaller {
	t.Helper()
	d, ok := t.driver().Driver.(driver.Signaller)
	if !ok {
		t.Fatalf("Signals is claimed, and the driver is no driver.Signaller")
	}
	return d
}

// endsAfter waits for c to be closed, and returns how long after since that was.
func (t *T) endsAfter(since pace.Moment, c <-chan struct{}, what string) time.Duration {
	t.Helper()
	t.Ends(c, t.Timing().Patience, what)
	return since.Took()
}

func testRequestArrives(t *T) {
	a, b := t.Locker(), t.Locker()
	var times []time.Duration
	for _, name := range []string{"k", "{a}b", "}x", "a b", "\x00\n\t", "ü?&=%"} {
		key, other := t.Key(name), t.Key("other than "+name)
		lease, bystander := t.Lock(a, key), t.Lock(a, other)
		inner := t.LockUnder(lease.Context(t.Context()), a, key)
		asked, never := lease.ReleaseRequested(), bystander.ReleaseRequested()
		t.requests(b, key)
		times = append(times, t.endsAfter(pace.Now(), asked, "ReleaseRequested"))
		t.Ends(inner.ReleaseRequested(), t.Timing().Patience, "ReleaseRequested of an inner lease")
		t.Open(never, "ReleaseRequested of another key")
		t.Taken(b, key)
		t.Unlock(inner)
		t.Unlock(lease)
		t.Unlock(bystander)
	}
	t.Median("the time from RequestRelease to ReleaseRequested", times, t.Timing().WakeWithin)
	t.Is(t.admin(b).RequestRelease(t.Context(), t.Key("free")), locker.ErrNotHeld)
}

func testRequestArrivesAfterCut(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	asked := lease.ReleaseRequested()
	t.NoError(t.faults().CutNotifications(), "cutting notifications")
	t.Eventually(t.Timing().Patience, "a request arrives again", func() bool {
		if err := t.admin(b).RequestRelease(t.Context(), key); err != nil {
			t.Isnt(err, locker.ErrNotHeld, locker.ErrInvalid)
		}
		select {
		case <-asked:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	t.UnlockedWithin(t.Timing().Patience, lease)
}

func testRequestIsOfItsTime(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var times []time.Duration
	for range 5 {
		lease := t.Lock(a, key)
		asked := lease.ReleaseRequested()
		t.Open(asked, "ReleaseRequested of a new lease")
		t.requests(b, key)
		times = append(times, t.endsAfter(pace.Now(), asked, "ReleaseRequested"))
		t.Unlock(lease)
	}
	t.Median("the time from RequestRelease to ReleaseRequested", times, t.Timing().WakeWithin)
}

func testForceUnlockArrives(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var times []time.Duration
	renewed, unrenewed := []locker.LockOption{}, []locker.LockOption{locker.WithoutRenewal()}
	for _, opts := range [][]locker.LockOption{renewed, unrenewed, renewed, unrenewed, renewed} {
		lease := t.Lock(a, key, append(opts, locker.WithTTL(heardTTL))...)
		asked := lease.ReleaseRequested()
		t.NoError(t.admin(b).ForceUnlock(t.Context(), t.inspect(b, key)), "ForceUnlock")
		times = append(times, t.endsAfter(pace.Now(), lease.Lost(), "Lost, long before the next renewal"))
		t.Is(lease.Err(), locker.ErrLost)
		t.Open(asked, "ReleaseRequested of what nobody asked for")
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
		t.Free(b, key)
	}
	t.Median("the time from ForceUnlock to Lost", times, t.Timing().WakeWithin)
}

func testOddSignalsBreakNothing(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	d := t.signaller()
	before := t.Lock(a, key)
	before.ReleaseRequested()
	late := t.inspect(b, key).ID
	t.Unlock(before)
	lease := t.Lock(a, key, locker.WithTTL(heardTTL))
	asked, now := lease.ReleaseRequested(), t.inspect(b, key).ID
	for _, s := range []driver.Signal{
		{Kind: driver.SignalRequest, Key: key, Claim: late},
		{Kind: driver.SignalBroken, Key: key, Claim: late},
		{Kind: driver.SignalRequest, Key: t.Key("another"), Claim: now},
		{Kind: '?', Key: key, Claim: now},
		{Kind: driver.SignalBroken, Key: key, Claim: now}, // a forgery
		{Kind: driver.SignalBroken, Key: key, Claim: now},
	} {
		t.NoError(d.Signal(t.Context(), s), "Signal")
	}
	// The signals before it have been heard when this one is.
	t.Open(asked, "ReleaseRequested")
	t.requests(b, key)
	t.Ends(asked, t.Timing().Patience, "ReleaseRequested")
	t.requests(b, key) // again
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Taken(b, key)
	t.Unlock(lease)
}

func testSignalOfNoClaimIsInvalid(t *T) {
	d := t.signaller()
	for _, id := range []string{"", "thread:1", "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b"} {
		t.Is(d.Signal(t.Context(), driver.Signal{Kind: driver.SignalRequest, Key: t.Key("k"), Claim: id}), driver.ErrInvalid)
	}
}

// endangered takes a lease, cuts it off from the store until it is at risk, and returns how much of the TTL was left when AtRisk
// closed: 0 if the lease was lost by then.
func (t *T) endangered(l locker.Locker, key string, ttl time.Duration) (left time.Duration) {
	t.Helper()
	lease := t.Lock(l, key)
	atRisk := lease.AtRisk()
	t.Open(atRisk, "AtRisk of a new lease")
	t.NoError(t.faults().Refuse(), "refusing")
	t.Ends(atRisk, ttl, "AtRisk")
	left = time.Until(lease.Deadline())
	lost := lease.Err() != nil
	t.NoError(t.faults().Heal(), "healing")
	if left > ttl*2/3 {
		t.Errorf("AtRisk closed %v before the Deadline, of a TTL of %v: no renewal was due yet", left, ttl)
	}
	if lost || left < ttl/4 {
		_ = lease.Unlock(t.Context())
		return 0
	}
	if lease.Err() != nil {
		return left // the machine was too slow to see it recover
	}
	t.RenewedWithin(t.Timing().Patience, lease)
	t.Ends(lease.AtRisk(), t.Timing().Prompt, "AtRisk, which stays closed")
	t.NoError(lease.Err(), "a lease that recovers")
	t.UnlockedWithin(t.Timing().Patience, lease)
	return left
}

func testAtRiskBeforeLoss(t *T) {
	ttl := t.Timing().TTL
	a := t.Locker(locker.WithTTL(ttl))
	// A machine that stands still may let one lease learn of it late.
	for tries, left := 1, time.Duration(0); left < ttl/4; tries++ {
		if left = t.endangered(a, t.Key(fmt.Sprint(tries)), ttl); left < ttl/4 && tries == 5 {
			t.Fatalf("of %d leases each is lost, or nearly so, when AtRisk closes: want a third of the TTL of %v to be left", tries, ttl)
		}
	}

	// The loss is later than the danger, by a third of the TTL.
	lease := t.Lock(a, t.Key("unrenewed"), locker.WithoutRenewal())
	begun := time.Now()
	t.Ends(lease.AtRisk(), ttl, "AtRisk without renewal")
	if early := ttl*2/3 - ttl/50 - 10*time.Millisecond; time.Since(begun) < early-t.Timing().Slack {
		t.Errorf("AtRisk without renewal closed after %v, of a TTL of %v", time.Since(begun), ttl)
	}
	t.Ends(lease.Lost(), ttl, "Lost")
}

func testHealthyIsNotAtRisk(t *T) {
	// A machine that stands still for a third of the TTL would be a danger.
	ttl := t.Timing().TTL + t.Timing().Slack
	a := t.Locker(locker.WithTTL(ttl), locker.WithRenewInterval(t.Timing().RenewEvery))
	plain, margin := t.Lock(a, t.Key("plain")), t.Lock(a, t.Key("margin"), locker.WithMargin(ttl/4))
	t.Sleep(ttl)
	for what, lease := range map[string]*locker.Lease{"a lease": plain, "a lease with a margin": margin} {
		t.NoError(lease.Err(), what)
		t.Open(lease.AtRisk(), "AtRisk of "+what+" that is renewed")
		t.Unlock(lease)
	}
}

func testMarginKeepsOthersOut(t *T) {
	ttl := t.Timing().ShortTTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	t.Free(b, key) // it is connected now
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithMargin(ttl/2), locker.WithoutRenewal())
	end := lease.Deadline()
	w := t.Wait(b, key)
	t.Ends(lease.Lost(), ttl, "Lost")
	t.Is(lease.Unlock(t.Context()), locker.ErrLost)
	next := t.Granted(w, ttl+t.Timing().PollWithin)
	if after := w.At.Time.Sub(end); after < ttl/2 {
		t.Errorf("the next owner came %v after the Deadline, want %v at least", after, ttl/2)
	}
	t.Unlock(next)
}

func testChangedKeyIsNoticed(t *T) {
	a, b := t.Locker(locker.WithLossDetection(), locker.WithTTL(heardTTL)), t.Locker()
	bystander := t.Lock(a, t.Key("bystander"))
	breaker := must[Breaker](t.h)
	var atOnce, watched []time.Duration
	for what, change := range map[string]func(ctx context.Context, key string) error{
		"deleted": breaker.Break, "ended": breaker.Expire, "stolen": breaker.Steal,
	} {
		for _, name := range []string{"k", "{a}b", "}x", "\x00\n*?[a]", "ü?&=%"} {
			for i, opts := range [][]locker.LockOption{{}, {}, {locker.WithoutRenewal()}} {
				key := t.Key(fmt.Sprint(what, name, i))
				lease := t.Lock(a, key, opts...)
				if end := lease.Deadline(); i == 0 { // it is watched when it has been renewed
					t.Eventually(t.Timing().Patience, "the lock is renewed once it is watched", func() bool { return lease.Deadline().After(end) })
				}
				t.NoError(change(t.Context(), key), what)
				took := t.endsAfter(pace.Now(), lease.Lost(), "Lost of a lock whose key was "+what)
				if i == 0 {
					watched = append(watched, took)
				} else {
					atOnce = append(atOnce, took)
				}
				t.Is(lease.Err(), locker.ErrLost)
				t.Is(lease.Unlock(t.Context()), locker.ErrLost)
			}
		}
	}
	t.Median("the time from a change at once after the grant to Lost", atOnce, t.Timing().WakeWithin)
	t.Median("the time from a change later to Lost", watched, t.Timing().WakeWithin)
	t.NoError(bystander.Renew(t.Context()), "Renew of another lock")
	t.Taken(b, t.Key("bystander"))
	t.Unlock(bystander)
}

func testDetectionAsksSeldom(t *T) {
	a, key := t.Locker(locker.WithLossDetection(), locker.WithTTL(heardTTL)), t.Key("k") // none is renewed by itself
	lease := t.Lock(a, key)
	end := lease.Deadline()
	t.Eventually(t.Timing().Patience, "the lock is renewed once it is watched", func() bool { return lease.Deadline().After(end) })
	before, own := t.faults().Sent(OpRenew), 0
	// A Locker asks at most once a second: this is time for four questions.
	for begun := time.Now(); time.Since(begun) < 3500*time.Millisecond; t.Sleep(t.Timing().RenewEvery) {
		t.NoError(lease.Renew(t.Context()), "Renew")
		own++
		t.Unlock(t.LockUnder(lease.Context(t.Context()), a, key))
	}
	if n := t.faults().Sent(OpRenew) - before; n > own+1 { // one more if it was watched anew, when a connection has ended
		t.Errorf("%d renewals of a lock that its holder has renewed %d times", n, own)
	}

	before = t.faults().Sent(OpRenew)
	slow := 0
	for range 20 {
		begun := time.Now()
		t.Unlock(t.Lock(a, t.Key("short")))
		if time.Since(begun) > 5*time.Millisecond { // not given back at once: it may be watched, and renewed then
			slow++
		}
	}
	if n := t.faults().Sent(OpRenew) - before; n > slow+1 {
		t.Errorf("%d renewals beside 20 locks that were given back at once, but for %d", n, slow)
	}
	t.NoError(lease.Err(), "a lock whose own doings were seen")
	t.Unlock(lease)
}
