package conformance

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

var wakeCases = group("wake-ups", []Case{
	{Name: "NotifiedWake", Rules: []string{"R15"}, Needs: Capabilities{Notified: true}, Test: testNotifiedWake,
		Contract: "where the store notifies, a waiter takes a freed key well before it would have looked by itself"},
	{Name: "WakeByExpiry", Rules: []string{"R15"}, Test: testWakeByExpiry,
		Contract: "waiters take a key that nobody unlocked, one after another, each within the bound"},
	{Name: "LooksEverySecond", Rules: []string{"R15"}, Needs: Capabilities{Break: true}, Test: testLooksEverySecond,
		Contract: "a waiter that nothing wakes looks for the key about once a second at least"},
	{Name: "NoMissedWakeup", Rules: []string{"R15"}, Test: testNoMissedWakeup,
		Contract: "an Unlock at any moment of another Locker's beginning to wait is not missed"},
	{Name: "EarlyWakeGoesOnWaiting", Rules: []string{"R15"}, Test: testEarlyWakeGoesOnWaiting,
		Contract: "a waiter that is woken and comes too late waits on, to its own bound"},
	{Name: "StaleSignalGrantsNothing", Rules: []string{"R1", "R15"}, Test: testStaleSignalGrantsNothing,
		Contract: "signals left over from earlier releases do not grant a held key"},
	{Name: "WakesOneAfterAnother", Rules: []string{"R15", "R16"}, Test: testWakesOneAfterAnother,
		Contract: "each Unlock lets one of the waiting Lockers in, until all had their turn"},
	{Name: "LostNotification", Rules: []string{"R15"}, Needs: Capabilities{Notified: true, Faults: true}, Isolated: true, Test: testLostNotification,
		Contract: "a waiter whose notifications are cut takes a freed key within the bound"},
	{Name: "NotifiedAgain", Rules: []string{"R15"}, Needs: Capabilities{Notified: true, Faults: true}, Isolated: true, Test: testNotifiedAgain,
		Contract: "after notifications were cut and came back waiters are woken by them again"},
	{Name: "RenewedHolderKeepsWaitersOut", Rules: []string{"R11", "R15"}, Test: testRenewedHolderKeepsWaitersOut,
		Contract: "a waiter that looks when the lease it knew of should be over finds it renewed, and waits on"},
})

// beforeTheLook is less than the pause after which a waiter that has a Watch looks for the
// key by itself: 0.8 s at least. A grant that comes sooner after the beginning of the wait is
// owed to a signal, however busy the machine is: time from Unlock would not show that, as the
// Unlock may be late, and the look be due.
const beforeTheLook = 750 * time.Millisecond

// wakeTime hands the key from holder to a waiter, and returns how long that took from Unlock
// on the suite's clock, and from the beginning of the wait in real time.
func (t *T) wakeTime(holder, waiter locker.Locker, key string) (fromUnlock, wait time.Duration) {
	t.Helper()
	lease := t.Lock(holder, key)
	begun := time.Now()
	w := t.Wait(waiter, key)
	freed := pace.Now()
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
	return w.At.Since(freed), w.At.Time.Sub(begun)
}

func testNotifiedWake(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var times, waits []time.Duration
	for range 9 {
		fromUnlock, wait := t.wakeTime(a, b, key)
		times, waits = append(times, fromUnlock), append(waits, wait)
	}
	t.Median("the time from Unlock to the waiter's grant", times, t.Timing().WakeWithin)
	// However slow the machine is, a wake-up comes before the look, sometimes.
	if shortest := slices.Min(waits); shortest > beforeTheLook {
		t.Errorf("of %d waits the shortest lasted %v: waiters look for the key, and are not woken", len(waits), shortest)
	}
}

func testWakeByExpiry(t *T) {
	ttl := t.Timing().ShortTTL
	key := t.Key("k")
	opts := []locker.LockOption{locker.WithTTL(ttl), locker.WithoutRenewal()}
	last := t.Lock(t.Locker(), key, opts...)
	var waiters []*suite.Waiter
	for _, l := range t.Lockers(3) {
		waiters = append(waiters, t.Wait(l, key, opts...))
	}
	for len(waiters) > 0 {
		i := t.first(waiters, ttl+t.Timing().PollWithin)
		next := t.Granted(waiters[i], t.Timing().Slack)
		if early := last.Deadline().Sub(waiters[i].At.Time); early > 0 {
			t.Errorf("the next holder was granted the key %v before the deadline", early)
		}
		last, waiters = next, slices.Delete(waiters, i, i+1)
	}
}

// first waits for one of the waiters to be done, at most d, and says which.
func (t *T) first(waiters []*suite.Waiter, d time.Duration) (which int) {
	t.Helper()
	t.Eventually(d, "one of the waiters is granted the key", func() bool {
		which = slices.IndexFunc(waiters, func(w *suite.Waiter) bool {
			select {
			case <-w.Done():
				return true
			default:
				return false
			}
		})
		return which >= 0
	})
	return which
}

func testLooksEverySecond(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	var times []time.Duration
	for range 5 {
		lease := t.Lock(a, key, locker.WithTTL(time.Hour))
		w := t.Wait(b, key)
		start := pace.Now()
		t.NoError(t.breaker().Break(t.Context(), key), "breaking the lock")
		next := t.Granted(w, t.Timing().PollWithin)
		times = append(times, w.At.Since(start))
		t.Is(lease.Unlock(t.Context()), locker.ErrLost)
		t.Unlock(next)
	}
	t.Median("the time from a lock's deletion to the waiter's grant", times, t.Timing().PollMedian)
}

// wakes notes how long after the release of a key waiters were granted it, and fails the case once more than allowed of
// them were as late as where a waiter is not woken, and looks. A store that does not notify has no such bound.
type wakes struct {
	t       *T
	allowed int // for moments in which the machine stands still
	late    []time.Duration
}

func (w *wakes) took(d time.Duration) {
	w.t.Helper()
	if !w.t.caps().Notified || d <= beforeTheLook/2 {
		return
	}
	if w.late = append(w.late, d); len(w.late) > w.allowed {
		w.t.Fatalf("%d waiters took a key so late after its release: %v, want %d of them after more than %v at most: waiters look for the key, and are not woken",
			len(w.late), w.late, w.allowed, beforeTheLook/2)
	}
}

// roundTrip returns how long l needs for one command.
func (t *T) roundTrip(l locker.Locker) time.Duration {
	t.Helper()
	key := t.Key("round trips")
	lease := t.Lock(t.Locker(), key)
	times := make([]time.Duration, 9)
	for i := range times {
		begun := time.Now()
		t.Taken(l, key)
		times[i] = time.Since(begun)
	}
	t.Unlock(lease)
	return suite.Median(times)
}

func testNoMissedWakeup(t *T) {
	a, b := t.Locker(), t.Locker()
	woken := wakes{t: t, allowed: 10}
	trip := t.roundTrip(b)
	for i := range 100 {
		key := t.Key(strconv.Itoa(i)) // a Locker listens on for a while
		lease := t.Lock(a, key)
		w := t.Start(b, key)
		// Anywhere from before its first attempt to after it listens: between two attempts it begins to.
		time.Sleep(time.Duration(t.IntN(int(4*trip) + 1))) // a random moment is the subject
		freed := pace.Now()
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
		woken.took(w.At.Since(freed))
	}
}

func testEarlyWakeGoesOnWaiting(t *T) {
	ls, key := t.Lockers(3), t.Key("k")
	lease := t.Lock(ls[0], key)
	waiters := []*suite.Waiter{t.Wait(ls[1], key), t.Wait(ls[2], key)}
	bounded := t.Wait(ls[0], key, locker.WithWait(t.Timing().PollWithin+t.Timing().Slack))
	t.Unlock(lease)
	all := append(waiters, bounded)
	i := t.first(all, t.Timing().PollWithin)
	winner := t.Granted(all[i], t.Timing().Slack)
	rest := slices.Delete(all, i, i+1)
	// That the others wait on is the subject.
	t.Sleep(t.Timing().ShortTTL)
	for _, w := range rest {
		t.Open(w.Done(), "the Lock of a waiter that came too late returns")
	}
	t.Unlock(winner)
	for len(rest) > 0 {
		i := t.first(rest, t.Timing().PollWithin)
		t.Unlock(t.Granted(rest[i], t.Timing().Slack))
		rest = slices.Delete(rest, i, i+1)
	}
}

func testStaleSignalGrantsNothing(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 20 {
		t.Unlock(t.Lock(a, key))
		ctx, cancel := context.WithCancel(t.Context())
		lease := t.Lock(a, key)
		w := t.WaitUnder(ctx, b, key)
		cancel()
		t.Ends(w.Done(), t.Timing().Prompt, "the end of a cancelled wait")
		t.Unlock(lease)
	}
	lease := t.Lock(a, key)
	w := t.Wait(b, key)
	// That it goes on waiting is the subject.
	t.Sleep(t.Timing().ShortTTL)
	t.Waits(w)
	t.Taken(t.Locker(), key)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testWakesOneAfterAnother(t *T) {
	key := t.Key("k")
	last := t.Lock(t.Locker(), key)
	var waiters []*suite.Waiter
	for _, l := range t.Lockers(5) {
		waiters = append(waiters, t.Wait(l, key))
	}
	for len(waiters) > 0 {
		t.Unlock(last)
		i := t.first(waiters, t.Timing().PollWithin)
		last = t.Granted(waiters[i], t.Timing().Slack)
		waiters = slices.Delete(waiters, i, i+1)
		for _, w := range waiters {
			t.Open(w.Done(), "the Lock of a second waiter returns")
		}
	}
	t.Unlock(last)
}

func testLostNotification(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	for range 3 {
		lease := t.Lock(a, key)
		w := t.Wait(b, key)
		t.NoError(t.faults().CutNotifications(), "cutting notifications")
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
}

func testNotifiedAgain(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	t.wakeTime(a, b, key)
	t.NoError(t.faults().CutNotifications(), "cutting notifications")
	// It may come back in its own time, not for good stay away.
	t.Eventually(t.Timing().Patience, "a waiter is notified again", func() bool {
		_, wait := t.wakeTime(a, b, key)
		return wait <= beforeTheLook
	})
}

func testRenewedHolderKeepsWaitersOut(t *T) {
	ttl := t.Timing().TTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	t.Free(b, key) // it is connected now
	lease := t.Lock(a, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	w := t.Wait(b, key)
	// The waiter knows when this lease ends. The renewal below puts the end off.
	t.SleepPast(lease.Deadline().Add(-ttl / 2))
	t.NoError(lease.Renew(t.Context()), "Renew")
	t.Sleep(ttl*3/4 - t.Timing().RenewEvery)
	t.Waits(w)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}
