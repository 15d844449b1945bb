package locker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// handedOver answers an Acquire that a release has granted the key to an earlier claim,
// for ttl since ago.
func handedOver(ago, ttl time.Duration) step {
	return func(c *command) error {
		c.f.t.Mu.Lock()
		defer c.f.t.Mu.Unlock()
		hold := c.f.t.Put(c.Key, "earlier", "earlier", c.f.tokens(c.Key, 1), ttl-ago)
		c.answer = driver.Answer{Granted: true, Claim: "earlier", Token: hold.Token, Since: time.Now().Add(-ago), TTL: ttl}
		return nil
	}
}

// A grant by a release is the earlier claim's, counts from before that was sent, and is
// renewed to the full TTL when half of it is over.
func TestShortGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(700*time.Millisecond, 2*time.Second))
		waiting := b.locking(t.Context(), "k", WithTTL(30*time.Second))
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		if lease.Owner() != "earlier" || lease.Token() == 0 {
			t.Errorf("the lease is of owner %q with token %d, the grant was to the earlier claim", lease.Owner(), lease.Token())
		}
		left := time.Until(lease.Deadline())
		wantBetween(t, "the lease has left", left, 1300*time.Millisecond-22*time.Millisecond, 1300*time.Millisecond-22*time.Millisecond, "2 s from the earlier claim's attempt on, less the margin")
		b.until(granted + 299*time.Millisecond)
		b.wantSent(opRenew, 0, "half of the short grant is not over")
		b.until(granted + 301*time.Millisecond)
		renewed := b.wantSent(opRenew, 1, "half of the short grant is over")
		if renewed[0].ID != "earlier" || renewed[0].TTL != 30*time.Second {
			t.Errorf("renewed was %q for %v", renewed[0].ID, renewed[0].TTL)
		}
		if left := time.Until(lease.Deadline()); left < 29*time.Second {
			t.Errorf("the lease has %v left after its first renewal, of a TTL of 30s", left)
		}
		b.until(granted + 9*time.Second)
		b.wantSent(opRenew, 1, "the next is due after a third of the TTL")
		b.unlock(lease)
		released := b.wantSent(opRelease, 1, "one release")
		if released[0].ID != "earlier" {
			t.Errorf("released was %q", released[0].ID)
		}
	})
}

// A section that is over before costs no renewal.
func TestShortGrantOfAShortSection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(0, 2*time.Second))
		waiting := b.locking(t.Context(), "k")
		b.store.signal("k")
		lease := waiting.wantLease(t)
		b.until(b.at() + 900*time.Millisecond)
		b.unlock(lease)
		b.until(b.at() + time.Minute)
		b.wantSent(opRenew, 0, "the section was over before")
		b.wantIdle("the lease was unlocked")
	})
}

// A lease on a short grant that cannot be renewed is lost when that is over; one that
// comes too late is no lease, and is released.
func TestShortGrantEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false),
			handedOver(3*time.Second, 2*time.Second), handedOver(time.Second/2, 2*time.Second))
		b.store.from(opRenew, fail(errRefused))
		waiting := b.locking(t.Context(), "k")
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		b.until(granted + 1477*time.Millisecond)
		if lostIsClosed(lease) {
			t.Errorf("the lease is lost %v after the grant", b.at()-granted)
		}
		b.until(granted + 1479*time.Millisecond)
		if !lostIsClosed(lease) {
			t.Errorf("the lease is not lost %v after the grant", b.at()-granted)
		}
		wantErr(t, lease.Unlock(t.Context()), ErrLost, "it was lost")
	})
}

// A driver is told that a short grant will do only where the lease renews by itself
// without a limit.
func TestShortGrantWillDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		for name, c := range map[string]struct {
			opts  []LockOption
			short bool
		}{
			"default":     {nil, true},
			"no renewal":  {[]LockOption{WithoutRenewal()}, false},
			"some":        {[]LockOption{WithMaxRenewals(3)}, false},
			"a limit":     {[]LockOption{WithMaxHold(time.Hour)}, false},
			"a short TTL": {[]LockOption{WithTTL(MinTTL)}, true},
		} {
			b.unlock(b.lock(t.Context(), name, c.opts...))
			sent := b.store.sent(opAcquire)
			if last := sent[len(sent)-1]; last.Short != c.short {
				t.Errorf("%s: a short grant will do: %v, want %v", name, last.Short, c.short)
			}
		}
	})
}

// A limit of the caller's ends a short grant when it is over, and no sooner.
func TestLimitOfAShortGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(time.Minute, false), busy(time.Minute, false), handedOver(0, 2*time.Second))
		waiting := b.locking(t.Context(), "k", WithMaxHold(time.Second))
		b.store.signal("k")
		lease := waiting.wantLease(t)
		granted := b.at()
		b.wantSent(opRelease, 0, "the grant is taken")
		b.until(granted + 999*time.Millisecond)
		if err := lease.Err(); err != nil {
			t.Errorf("the lease after 999 ms of 1 s: %v", err)
		}
		b.until(granted + time.Second)
		wantErr(t, lease.Err(), ErrLost, "its limit is reached")
	})
}
