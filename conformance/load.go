package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

var loadCases = group("load", []Case{
	{Name: "NoStarvation", Rules: []string{"R15"}, Test: testNoStarvation,
		Contract: "Lockers that take the key over and over do not keep another one out for good"},
	{Name: "ManyKeysAtOnce", Rules: []string{"R18"}, Test: testManyKeysAtOnce,
		Contract: "with hundreds of waiters on hundreds of keys the holder still renews and unlocks, and every waiter gets its key"},
	{Name: "ManyWaitersOnOneKey", Rules: []string{"R14", "R18"}, Test: testManyWaitersOnOneKey,
		Contract: "hundreds of callers that wait for one key and are cancelled all return promptly, and the key is free afterwards"},
	{Name: "ManyLeasesRenewed", Rules: []string{"R11", "R13"}, Test: testManyLeasesRenewed,
		Contract: "hundreds of leases held by one Locker are all renewed in time"},
	{Name: "ManyCallersFarAway", Rules: []string{"R11", "R13", "R18"}, Needs: Capabilities{Faults: true}, Serial: true, Test: testManyCallersFarAway,
		Contract: "while 2,000 callers lock and unlock, and each reply takes 20 ms, leases that others hold are renewed in time, and every Unlock succeeds"},
})

func testNoStarvation(t *T) {
	key := t.Key("k")
	ls := t.Lockers(3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := t.Begin(2, func(i int) {
		for ctx.Err() == nil {
			lease, err := ls[i+1].Lock(ctx, key)
			if err != nil {
				t.Is(err, context.Canceled)
				return
			}
			time.Sleep(time.Millisecond) // the section
			t.Unlock(lease)
		}
	})
	for range 3 {
		t.Unlock(t.Lock(ls[0], key))
	}
	stop()
	wait()
}

func testManyKeysAtOnce(t *T) {
	const n = 200
	var renewals renewalLog
	holder, waiter := t.Locker(suite.WithObserver(&renewals)), t.Locker()
	leases, waiters := make([]*locker.Lease, n), make([]*suite.Waiter, n)
	for i := range n {
		leases[i] = t.Lock(holder, t.Key(strconv.Itoa(i)), locker.WithTTL(t.Timing().TTL))
	}
	for i := range n {
		waiters[i] = t.Wait(waiter, leases[i].Key())
	}
	// Past the end of the leases, had they not been renewed.
	t.Sleep(t.Timing().TTL + t.Timing().TTL/4)
	for i := range n {
		t.stillHeld(leases[i], &renewals)
		t.Waits(waiters[i])
		t.Unlock(leases[i])
	}
	for i := range n {
		t.Unlock(t.Granted(waiters[i], t.Timing().PollWithin+t.Timing().Slack))
	}
}

func testManyWaitersOnOneKey(t *T) {
	const n = 200
	holder, waiter, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(holder, key)
	cancel := t.Crowd(n, waiter, key)
	t.Taken(waiter, key)
	cancel()
	t.Unlock(lease)
	t.FreeWithin(t.Timing().PollWithin, waiter, key)
}

// loaded runs f, whose leases last ttl, until none of them is lost, or one is lost that the
// machine is no reason for. A case can make the machine slow by itself, and nothing shows
// before how long leases have to be then. Where renewals queue behind other commands, longer
// leases are lost, too.
func (t *T) loaded(f func(ttl time.Duration) (lost string)) {
	t.Helper()
	const tries, slow = 3, 3
	for n, ttl := 1, t.Timing().TTL; ; n, ttl = n+1, 2*ttl {
		start := pace.Now()
		lost := f(ttl)
		if lost == "" {
			return
		}
		// A store may be slow, now and then or always, though the processor has time.
		wasSlow := pace.Factor() > slow || time.Since(start.Time) > slow*start.Took()
		if n == tries || !wasSlow {
			t.Fatalf("%s", lost)
		}
		t.Logf("once more, with leases twice as long, since the machine is slow: %s", lost)
	}
}

func testManyCallersFarAway(t *T) {
	const farAway = 20 * time.Millisecond
	var renewals renewalLog
	l := t.Locker(suite.WithObserver(&renewals))
	t.NoError(t.faults().Slow(farAway), "having the replies take their time")
	t.loaded(func(ttl time.Duration) string { return t.manyCallers(l, ttl, &renewals) })
}

// manyCallers lets callers lock and unlock while leases are held for longer than they last.
func (t *T) manyCallers(l locker.Locker, ttl time.Duration, renewals *renewalLog) (lost string) {
	t.Helper()
	const callers, held = 2000, 30
	leases := make([]*locker.Lease, held)
	for i := range leases {
		leases[i] = t.Lock(l, t.Key(fmt.Sprint(i, " for ", ttl)), locker.WithTTL(ttl))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	wait := t.Begin(callers, func(i int) {
		// All at once, now and then: the processor is to have time for the leases.
		for ctx.Err() == nil {
			lease, err := l.Lock(ctx, t.Key("caller's "+strconv.Itoa(i)))
			if err != nil {
				t.Is(err, context.Canceled)
				return
			}
			t.Unlock(lease)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	// That time passes without a loss is the subject.
	t.Sleep(ttl + ttl/2)
	stop()
	wait()
	for _, lease := range leases {
		if why := t.lost(lease, ttl, renewals); why != "" {
			lost = why
			continue
		}
		t.Unlock(lease)
	}
	return lost
}

func testManyLeasesRenewed(t *T) {
	const n = 300
	var renewals renewalLog
	a, b := t.Locker(suite.WithObserver(&renewals)), t.Locker()
	keys, leases := make([]string, n), make([]*locker.Lease, n)
	for i := range n {
		keys[i] = t.Key(strconv.Itoa(i))
		leases[i] = t.Lock(a, keys[i], locker.WithTTL(t.Timing().TTL))
	}
	// That time passes without a loss is the subject.
	t.Sleep(t.Timing().TTL + t.Timing().TTL/2)
	for i := range n {
		t.stillHeld(leases[i], &renewals)
		t.Taken(b, keys[i])
		t.Unlock(leases[i])
	}
}

// renewalLog remembers the last renewal of each key that failed, and why.
type renewalLog struct {
	mu   sync.Mutex
	last map[string]locker.Event
}

// Observe implements [locker.Observer].
func (r *renewalLog) Observe(_ context.Context, e locker.Event) {
	if e.Kind != locker.EventRenewFailed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[string]locker.Event)
	}
	r.last[e.Key] = e
}

// stillHeld checks that a lease was not lost under load.
func (t *T) stillHeld(lease *locker.Lease, renewals *renewalLog) {
	t.Helper()
	if lost := t.lost(lease, t.Timing().TTL, renewals); lost != "" {
		t.Fatalf("%s", lost)
	}
}

// lost is why a lease of ttl was lost, or "".
func (t *T) lost(lease *locker.Lease, ttl time.Duration, renewals *renewalLog) string {
	select {
	case <-lease.Lost():
	default:
		return ""
	}
	renewals.mu.Lock()
	failed, ok := renewals.last[lease.Key()]
	renewals.mu.Unlock()
	why := "no renewal of it failed: it was not renewed in time"
	if ok {
		why = fmt.Sprintf("its last renewal that failed: %v", failed.Err)
	}
	return fmt.Sprintf("the lease of %q is lost (%v); %s. Either renewals queue behind other commands, or the machine is too slow for leases of %v: it was %.1f times as slow as an idle one of late (see Timing.TTL)",
		lease.Key(), lease.Err(), why, ttl, pace.Factor())
}
