package locker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// A request closes ReleaseRequested of all leases on the acquisition, once, and takes nothing away.
func TestReleaseRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t, WithPrefix("app:"))
		l := s.lock(t.Context(), "k")
		inner := s.lock(l.Context(t.Context()), "k")
		bystander := s.lock(t.Context(), "other")
		asked, never := l.ReleaseRequested(), bystander.ReleaseRequested()
		if s.listening() != 1 {
			t.Fatalf("%d listen, want 1: ReleaseRequested has returned", s.listening())
		}
		wantErr(t, s.other.RequestRelease(t.Context(), "k"), ErrNotHeld, "another Locker has another prefix")
		h := s.inspect("app:k")
		for range 3 { // the second and third change nothing
			if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalRequest, Key: "app:k", Claim: h.ID}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !closed(asked) || !closed(inner.ReleaseRequested()) || closed(never) {
			t.Errorf("asked %v, inner lease %v, another key %v; want true, true, false",
				closed(asked), closed(inner.ReleaseRequested()), closed(never))
		}
		if err := l.Err(); err != nil {
			t.Errorf("Err: %v, want nil: nothing is taken away", err)
		}
		s.unlock(inner)
		s.unlock(l)
		s.unlock(bystander)
		if !closed(l.ReleaseRequested()) {
			t.Error("ReleaseRequested is open after Unlock, want it to stay closed")
		}
		s.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleaseRequested: 1, EventReleased: 2}, "one request")
		if n := s.running(); n != 0 {
			t.Errorf("%d pieces of work go on, want none", n)
		}
		time.Sleep(time.Second) // the end of listening, on the bubble's clock, which is no event of a lease
		if s.listening() != 0 {
			t.Error("the Locker listens, want it to have stopped: no lease waits")
		}
		again := s.lock(t.Context(), "k")
		if again.ReleaseRequested(); s.listening() != 1 {
			t.Error("the Locker does not listen, want it to have begun again")
		}
	})
}

// A Locker asks itself without a signal. Whoever asks for what cannot be given is refused.
func TestRequestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l := s.lock(t.Context(), "k")
		if err := s.RequestRelease(t.Context(), "k"); err != nil {
			t.Errorf("RequestRelease of its own: %v, want nil", err)
		}
		if !closed(l.ReleaseRequested()) {
			t.Error("ReleaseRequested is open, want it closed: it was requested before")
		}
		if s.listening() != 0 {
			t.Error("the Locker listens, want it not to: the request has come")
		}
		wantErr(t, s.RequestRelease(t.Context(), "free"), ErrNotHeld, "a free key")
		s.store.seize("foreign", "redis-py", time.Minute)
		err := s.RequestRelease(t.Context(), "foreign")
		wantErr(t, err, ErrConflict, "another library's lock")
		if msg := err.Error(); strings.Contains(msg, ErrConflict.Error()) || !strings.Contains(msg, `"foreign"`) || !strings.Contains(msg, "ForceUnlock") {
			t.Errorf("%v, want an error that names the key, says what to do, and does not say that there is no lock", err)
		}
		wantErr(t, s.RequestRelease(t.Context(), ""), ErrInvalid, "no key")
		wantErr(t, s.RequestRelease(nil, "k"), ErrInvalid, "no context") //nolint:staticcheck // it is refused
		var zero *Lease
		if !closed(zero.ReleaseRequested()) {
			t.Error("ReleaseRequested of no lease is open, want it closed")
		}
		b := newBench(t, plain)
		err = b.RequestRelease(t.Context(), "k")
		wantErr(t, err, ErrInvalid, "a driver without signals")
		wantErr(t, err, errors.ErrUnsupported, "and that is why")
		if closed(b.lock(t.Context(), "k").ReleaseRequested()) {
			t.Error("ReleaseRequested is closed, want it open: the driver has no signals")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, s.RequestRelease(t.Context(), "k"), ErrClosed, "after Close")
	})
}

// The Locker does not listen for a lease that has ended. A request that comes while the lease ends changes nothing.
func TestRequestOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l := s.lock(t.Context(), "k")
		s.unlock(l)
		if asked := l.ReleaseRequested(); closed(asked) || s.listening() != 0 || s.Client.listening.wanted.Load() != 0 {
			t.Errorf("ReleaseRequested closed %v, %d listen, want an open channel and nobody", closed(asked), s.listening())
		}
		l = s.lock(t.Context(), "k")
		asked, id := l.ReleaseRequested(), s.inspect("k").ID
		s.store.next(opRelease, delay(100*time.Millisecond, obey))
		unlocking := s.unlocking(t.Context(), l)
		for _, kind := range []driver.SignalKind{driver.SignalRequest, driver.SignalBroken} {
			s.heard(driver.Signal{Kind: kind, Key: "k", Claim: id})
		}
		<-unlocking.done
		if closed(asked) || closed(l.ReleaseRequested()) {
			t.Error("ReleaseRequested is closed, want it open: the lease was unlocked before")
		}
		time.Sleep(5 * time.Second) // on the bubble's clock
		s.wantSent(opRenew, 0, "nobody asks about what was given back")
		s.wantEvents(map[EventKind]int{EventAcquired: 2, EventReleased: 2}, "no request has come in time")
	})
}

// A request for a lock that is on its way to the next waiter is for that one: nobody has it who could learn of it.
func TestRequestOfAnOfferedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l := s.lock(t.Context(), "k")
		c := l.claim
		c.s.mu.Lock()
		c.reported = true // as by the Unlock that has offered it
		c.ask()
		c.reported = false // as by the next lease
		c.begin(s.sched.Now(), 0)
		c.s.mu.Unlock()
		s.wantEvents(map[EventKind]int{EventAcquired: 1, EventReleaseRequested: 1}, "that of the next lease")
		if !closed(l.ReleaseRequested()) {
			t.Error("ReleaseRequested is open, want it closed: it was asked for before")
		}
		s.unlock(l)
	})
}

// A lock that was handed over while its Locker listened is listened for no more, unless the next lease waits, too. The store is
// asked about it once a second, as before.
func TestSignalsAndHandOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t, WithTTL(time.Hour), WithoutFencing(), WithHandOver(16, time.Second))
		first := s.lock(t.Context(), "k")
		first.ReleaseRequested()
		l, id := first, s.inspect("k").ID
		broken := func() {
			s.heard(driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: id})
			synctest.Wait()
		}
		pass := func() {
			next := s.locking(t.Context(), "k")
			s.unlock(l)
			l = next.wantLease(t)
			s.wantSent(opRelease, 0, "it is handed over")
		}
		broken()
		s.wantSent(opRenew, 1, "the store is asked at once")
		pass()
		if closed(first.ReleaseRequested()) || s.Client.listening.wanted.Load() != 0 {
			t.Error("the first lease was asked for, or waits for that")
		}
		broken()
		s.wantSent(opRenew, 1, "a second is not over")
		pass()
		broken()
		s.until(900 * time.Millisecond)
		if s.listening() != 0 {
			t.Error("the Locker listens, and nobody waits")
		}
		s.until(time.Second)
		s.wantSent(opRenew, 2, "one question for all")
		s.until(5 * time.Second)
		s.wantSent(opRenew, 2, "nobody has doubted it since")
		broken()
		broken() // in a second
		s.unlock(l)
		s.until(10 * time.Second)
		s.wantSent(opRenew, 3, "it was given back before the second")
		if n := s.running(); n != 0 {
			t.Errorf("%d pieces of work go on, want none", n)
		}
	})
}

// Signals that are lost, late, repeated, forged or unknown break nothing.
func TestBadSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		old := s.lock(t.Context(), "k")
		old.ReleaseRequested()
		late := s.inspect("k")
		s.unlock(old)
		l := s.lock(t.Context(), "k")
		asked := l.ReleaseRequested()
		now := s.inspect("k")
		for _, sig := range []driver.Signal{
			{Kind: driver.SignalRequest, Key: "k", Claim: late.ID},
			{Kind: driver.SignalBroken, Key: "k", Claim: late.ID},
			{Kind: driver.SignalRequest, Key: "another", Claim: now.ID},
			{Kind: driver.SignalRequest, Key: "", Claim: now.ID},
			{Kind: 0, Key: "k", Claim: now.ID},
			{Kind: 'x', Key: "k", Claim: now.ID},
		} {
			if err := s.d.Signal(t.Context(), sig); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		s.wantSent(opRenew, 0, "none of these is about the claim")
		for range 45 { // a flood of forgeries over 4.5 s
			if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: now.ID}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // the pace of the flood, on the bubble's clock
		}
		s.wantSent(opRenew, 5, "one command a second, however many are forged")
		if err := l.Err(); err != nil || closed(asked) {
			t.Errorf("Err %v, requested %v; want a lease that is held", err, closed(asked))
		}
		s.unlock(l)
	})
}

// A holder that listens loses its lease within a round trip when its lock is broken; without
// listening at its next renewal.
func TestForceUnlockIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []LockOption
		listens bool
		at      time.Duration
	}{
		"renewed":               {nil, true, 0},
		"without renewal":       {[]LockOption{WithoutRenewal()}, true, 0},
		"with a limit":          {[]LockOption{WithMaxRenewals(3)}, true, 0},
		"nobody listens":        {nil, false, 10 * time.Second},
		"nobody renews, either": {[]LockOption{WithoutRenewal()}, false, 29698 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSignalled(t, WithTTL(30*time.Second))
				l := s.lock(t.Context(), "k", c.opts...)
				if c.listens {
					l.ReleaseRequested()
				}
				if err := s.other.ForceUnlock(t.Context(), s.inspect("k")); err != nil {
					t.Fatal(err)
				}
				s.wantClosedAt(l.Lost(), c.at, "that is when the holder knows")
				wantErr(t, l.Err(), ErrLost, "it was broken")
			})
		})
	}
}

// A claim WithoutRenewal is not extended by a forged signal.
func TestForgeryExtendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l := s.lock(t.Context(), "k", WithoutRenewal())
		l.ReleaseRequested()
		end := l.Deadline()
		time.Sleep(5 * time.Second) // on the bubble's clock
		if err := s.d.Signal(t.Context(), driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: s.inspect("k").ID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.wantSent(opRenew, 0, "the store is asked who holds the key")
		if got := l.Deadline(); got.Sub(end).Abs() > time.Millisecond || l.Err() != nil {
			t.Errorf("the Deadline moved by %v, Err %v", got.Sub(end), l.Err())
		}
	})
}

// A claim that was asked for is not handed over: its Unlock is a release.
func TestRequestedIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t, WithoutFencing(), WithHandOver(16, time.Second))
		l := s.lock(t.Context(), "k")
		before := l.ReleaseRequested()
		waiter := s.locking(t.Context(), "k")
		s.unlock(l)
		l = waiter.wantLease(t)
		s.wantSent(opRelease, 0, "handed over")
		asked := l.ReleaseRequested()
		s.request("k")
		if !closed(asked) || closed(before) {
			t.Errorf("requested: the holder %v, the one before it %v; want true, false", closed(asked), closed(before))
		}
		waiter = s.locking(t.Context(), "k")
		s.unlock(l)
		s.wantSent(opRelease, 1, "the lock was asked for")
		s.unlock(waiter.wantLease(t))
	})
}

// A request that comes before the next caller has taken the lock is reported after that caller's grant.
func TestRequestDuringAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithoutFencing(), WithHandOver(4, time.Second))
		l, next := b.lock(t.Context(), "k"), b.locking(t.Context(), "k")
		l.claim.s.mu.Lock()
		if !l.claim.offer(t.Context(), l) {
			t.Error("the lock is not handed over")
		}
		l.claim.ask()
		l.claim.s.mu.Unlock()
		if !closed(next.wantLease(t).ReleaseRequested()) {
			t.Error("the next caller does not learn of the request")
		}
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if last := b.seen[len(b.seen)-1]; last.Kind != EventReleaseRequested {
			t.Errorf("the last event is %q, want %q: the grant comes before it", last.Kind, EventReleaseRequested)
		}
	})
}
