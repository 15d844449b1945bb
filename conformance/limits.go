package conformance

import (
	"context"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

var limitCases = group("limits", []Case{
	{Name: "MaxHold", Rules: []string{"R12"}, Locker: true, Test: testMaxHold,
		Contract: "at the end of WithMaxHold the lease is lost while the key is still taken, and Unlock frees it early"},
	{Name: "MaxHoldStopsRenewal", Rules: []string{"R12"}, Locker: true, Test: testMaxHoldStopsRenewal,
		Contract: "after the end of WithMaxHold nothing is renewed, and without Unlock the key is free after the TTL"},
	{Name: "MaxRenewals", Rules: []string{"R12"}, Locker: true, Test: testMaxRenewals,
		Contract: "WithMaxRenewals(n) allows n renewals; when one more is due the lease is lost with half of the TTL left, the key still taken, and Unlock frees it early"},
	{Name: "LimitIsTheCause", Rules: []string{"R12"}, Locker: true, Test: testLimitIsTheCause,
		Contract: "a lease ended by a limit is lost with a cause of its own, which is not that of an expiry"},
	{Name: "LimitsAsDefaults", Rules: []string{"R12"}, Locker: true, Test: testLimitsAsDefaults,
		Contract: "options of a call given to the constructor hold for every call, and a call's own come first"},
})

// limited checks a lease that a limit has just ended: the key is still taken,
// and Unlock frees it before its deadline.
func (t *T) limited(other locker.Locker, lease *locker.Lease) {
	t.Helper()
	t.Taken(other, lease.Key())
	t.Is(lease.Renew(t.Context()), locker.ErrLost)
	t.Is(context.Cause(lease.Context(t.Context())), locker.ErrLost)
	// Nil or ErrLost: the hold was given back, and the section was not whole.
	if err := lease.Unlock(t.Context()); err != nil {
		t.Is(err, locker.ErrLost)
	}
	lease2 := t.Lock(other, lease.Key())
	if left := time.Until(lease.Deadline()); left <= 0 {
		t.Errorf("Unlock did not free the key before the deadline, which was %v ago", -left)
	}
	t.Unlock(lease2)
}

func testMaxHold(t *T) {
	hold := t.Timing().ShortTTL
	ttl := t.Timing().TTL + t.Timing().Slack + hold
	a, b, key := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery)), t.Locker(), t.Key("k")
	before := time.Now()
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithMaxHold(hold))
	ctx := lease.Context(t.Context())
	t.Ends(lease.Lost(), hold+t.Timing().Slack, "the end of WithMaxHold")
	if held := time.Since(before); held < hold {
		t.Errorf("a lease with a limit of %v was lost after %v", hold, held)
	}
	t.Ends(ctx.Done(), t.Timing().Slack, "the lease's context ends at the limit")
	t.Is(ctx.Err(), locker.ErrLost)
	t.limited(b, lease)
}

func testMaxHoldStopsRenewal(t *T) {
	var events suite.EventLog
	hold := t.Timing().ShortTTL
	a := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery), suite.WithObserver(&events))
	b, key := t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(2*hold), locker.WithMaxHold(hold))
	t.Ends(lease.Lost(), hold+t.Timing().Slack, "the end of WithMaxHold")
	deadline, n := lease.Deadline(), events.Count(locker.EventRenewed)
	t.FreeWithin(time.Until(deadline)+t.Timing().PollWithin, b, key)
	// One renewal may have been on its way, and its event late.
	if more := events.Count(locker.EventRenewed) - n; more > 1 {
		t.Errorf("%d renewals after the limit", more)
	}
	if d := lease.Deadline(); d.After(deadline) {
		t.Errorf("the deadline moved by %v after the limit", d.Sub(deadline))
	}
}

func testMaxRenewals(t *T) {
	const n = 2
	var events suite.EventLog
	every := t.Timing().RenewEvery
	ttl := t.Timing().TTL + 2*t.Timing().Slack
	a := t.Locker(locker.WithRenewInterval(every), suite.WithObserver(&events))
	b, key := t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithMaxRenewals(n))
	t.Ends(lease.Lost(), (n+1)*every+t.Timing().Slack, "the end of WithMaxRenewals")
	if left := time.Until(lease.Deadline()); left < ttl/2 {
		t.Errorf("%v is left of a TTL of %v for rolling back", left, ttl)
	}
	t.Eventually(t.Timing().Slack, "the event of the loss", func() bool { return events.Count(locker.EventLost) == 1 })
	if got := events.Count(locker.EventRenewed); got != n {
		t.Errorf("%d renewals, %d are allowed", got, n)
	}
	t.limited(b, lease)
}

func testLimitIsTheCause(t *T) {
	every := t.Timing().RenewEvery
	l := t.Locker(locker.WithRenewInterval(every))
	texts := map[string]string{}
	for name, opt := range map[string]locker.LockOption{
		"no renewal": locker.WithoutRenewal(), "max hold": locker.WithMaxHold(every), "max renewals": locker.WithMaxRenewals(1),
	} {
		// All have one key: the causes have to differ without it.
		ttl := t.Timing().TTL + t.Timing().Slack
		if name == "no renewal" {
			ttl = t.Timing().ShortTTL
		}
		lease := t.Lock(l, t.Key("k"), locker.WithTTL(ttl), opt)
		t.Ends(lease.Lost(), t.Timing().ShortTTL+t.Timing().Slack, "the loss of a lease: "+name)
		cause := context.Cause(lease.Context(t.Context()))
		t.Is(cause, locker.ErrLost)
		texts[name] = cause.Error()
		_ = lease.Unlock(t.Context())
	}
	for a, textA := range texts {
		for b, textB := range texts {
			if a != b && textA == textB {
				t.Errorf("%s and %s have the same cause: %s", a, b, textA)
			}
		}
	}
}

func testLimitsAsDefaults(t *T) {
	hold := t.Timing().RenewEvery
	l := t.Locker(locker.WithMaxHold(hold), locker.WithWait(hold))
	patient := locker.WithWait(t.Timing().Patience)
	byDefault := t.Lock(l, t.Key("default"), patient)
	byCall := t.Lock(l, t.Key("call"), patient, locker.WithMaxHold(time.Hour))
	t.Ends(byDefault.Lost(), hold+t.Timing().Slack, "the end of the default WithMaxHold")
	_, err := l.Lock(t.Context(), byCall.Key())
	t.Is(err, locker.ErrNotAcquired)
	t.Open(byCall.Lost(), "Lost of a lease with a limit of its own")
	t.Unlock(byCall)
	if err := byDefault.Unlock(t.Context()); err != nil {
		t.Is(err, locker.ErrLost)
	}
}
