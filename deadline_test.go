package locker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Validity counts from before the command was sent, less 1 % of the TTL and 2 ms,
// however late the answer; a renewal moves it likewise.
func TestDeadline(t *testing.T) {
	for _, c := range []struct{ ttl, late, want time.Duration }{
		{100 * time.Millisecond, 0, 97 * time.Millisecond},
		{time.Second, 900 * time.Millisecond, 988 * time.Millisecond},
		{30 * time.Second, 3 * time.Second, 29698 * time.Millisecond},
		{100*time.Millisecond + 1, 0, 98*time.Millisecond - 10*time.Microsecond}, // the store counts whole ms
	} {
		t.Run(fmt.Sprint(c.ttl, c.late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				b.store.from(opAcquire, replyAfter(c.late))
				l := b.lock(t.Context(), "k", WithTTL(c.ttl), WithoutRenewal())
				wantBetween(t, "the deadline is at", l.Deadline().Sub(b.start), c.want, c.want, "sent + TTL - 1% - 2ms")
				sent := b.at()
				b.store.from(opRenew, replyAfter(10*time.Millisecond))
				if err := l.Renew(t.Context()); err != nil {
					t.Fatalf("Renew at %v: %v, want nil", sent, err)
				}
				wantBetween(t, "renewed, the deadline is at", l.Deadline().Sub(b.start), sent+c.want, sent+c.want, "sent + TTL - 1% - 2ms")
				b.unlock(l)
			})
		})
	}
}

// A grant that arrives after its lease has ended is no grant: TryLock fails, Lock
// goes on with a new claim, and the late one is given back.
func TestLateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		b.store.next(opAcquire, replyAfter(988*time.Millisecond))
		_, err := b.TryLock(t.Context(), "k")
		wantErr(t, err, ErrUnavailable, "the lease was over when the grant came", ErrNotAcquired)
		synctest.Wait()
		if r := b.wantSent(opRelease, 1, "the late grant is given back"); r[0].ID != b.store.sent(opAcquire)[0].ID {
			t.Errorf("%s was released, want the late claim", r[0].ID)
		}
		b.wantIdle("TryLock failed")

		b.store.next(opAcquire, replyAfter(995*time.Millisecond))
		l := b.lock(t.Context(), "k")
		sent := b.wantSent(opAcquire, 3, "Lock tries again")
		if sent[1].ID == sent[2].ID {
			t.Error("the late claim was sent again, want a new one: it is being given back")
		}
		b.wantSent(opRelease, 2, "the late grant is given back")
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventNotAcquired: 1}, "a late grant is no event")
		b.unlock(l)
	})
}

// With a driver that hangs Lost closes, and contexts end, exactly at the
// deadline; the store is not needed.
func TestLostAtTheDeadline(t *testing.T) {
	for name, s := range map[string]step{"hanging": hang, "deaf to its context": deaf(time.Minute), "failing": fail(errReset)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(10*time.Second))
				b.store.from(opRenew, s)
				l := b.lock(t.Context(), "k")
				ctx := l.Context(t.Context())
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				for what, ended := range map[string]<-chan struct{}{"Lost": l.Lost(), "the context": ctx.Done(), "its child": child.Done()} {
					<-ended
					wantBetween(t, what+" ended at", b.at(), 9898*time.Millisecond, 9898*time.Millisecond, "that is the deadline")
				}
				if d := l.Deadline().Sub(b.start); d != b.at() {
					t.Errorf("the deadline is %v, want %v: no renewal went through", d, b.at())
				}
				for what, err := range map[string]error{"Err": ctx.Err(), "Cause": context.Cause(ctx), "Cause of a child": context.Cause(child)} {
					wantErr(t, err, ErrLost, what)
				}
				b.until(2 * time.Minute)
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventLost: 1, EventRenewFailed: len(b.events()[EventRenewFailed])}, "lost once")
				if b.keys() != 0 {
					t.Error("the Locker knows the key, want it forgotten: the lease is lost")
				}
			})
		})
	}
}

// A grant that is newer than the one held here ends that: the store has lost it.
func TestNewerGrantEndsTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, delay(time.Second, obey))
		trying := b.begin(func() (*Lease, error) { return b.TryLock(t.Context(), "k") })
		old := b.lock(t.Context(), "k")
		b.until(500 * time.Millisecond)
		b.store.free("k") // the store loses its data
		l := trying.wantLease(t)
		if l.Token() <= old.Token() || lostIsClosed(l) {
			t.Errorf("token %d after %d, lost %v; want a newer lease", l.Token(), old.Token(), lostIsClosed(l))
		}
		<-old.Lost()
		wantBetween(t, "the old lease was lost at", b.at(), time.Second, time.Second, "that is when it is known")
		wantErr(t, old.Unlock(t.Context()), ErrLost, "the store has lost it")
		b.unlock(l)
		b.wantIdle("all leases are unlocked")
	})
}

// A grant that arrives after a newer one is known is late; TryLock says so like of
// any other late grant.
func TestOvertakenGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, replyAfter(time.Second))
		trying := b.begin(func() (*Lease, error) { return b.TryLock(t.Context(), "k") })
		b.store.free("k") // the store loses its data
		held := b.lock(t.Context(), "k")
		<-trying.done
		if trying.lease != nil || lostIsClosed(held) {
			t.Error("the late grant counts, want the newer one to count")
		}
		wantErr(t, trying.err, ErrUnavailable, "every error of TryLock is one of the package's")
		b.unlock(held)
	})
}

// Renewal runs every third of the TTL, or as often as was asked for, and goes on
// after errors; each success moves the deadline.
func TestRenewal(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []Option
		every time.Duration
	}{
		"a third of the TTL": {[]Option{WithTTL(30 * time.Second)}, 10 * time.Second},
		"an interval":        {[]Option{WithTTL(30 * time.Second), WithRenewInterval(2 * time.Second)}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, c.opts...)
				l := b.lock(t.Context(), "k")
				b.until(10*c.every + time.Second)
				for i, r := range b.wantSent(opRenew, 10, "one an interval") {
					at := time.Duration(i+1) * c.every
					wantBetween(t, "a renewal at", r.at, at, at, "one an interval")
				}
				b.store.next(opRenew, fail(errReset), failAfter(errReset))
				b.until(20 * c.every)
				if lostIsClosed(l) {
					t.Error("lost, want kept: a failed renewal is tried again")
				}
				got := b.events()
				if len(got[EventRenewFailed]) != 2 || len(got[EventRenewed]) < 17 {
					t.Errorf("%d renewals failed and %d succeeded, want 2 and the others", len(got[EventRenewFailed]), len(got[EventRenewed]))
				}
				b.unlock(l)
			})
		})
	}
}

// A renewal that is told "not yours" loses the lease at once, and is not tried
// again.
func TestDeniedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second))
		l := b.lock(t.Context(), "k")
		b.until(5 * time.Second)
		b.store.seize("k", "thief", time.Hour)
		<-l.Lost()
		wantBetween(t, "lost at", b.at(), 10*time.Second, 10*time.Second, "the first renewal tells")
		b.until(time.Minute)
		b.wantSent(opRenew, 1, "there is nothing to renew")
		wantErr(t, l.Unlock(t.Context()), ErrLost, "the thief has it")
		b.wantSent(opRelease, 0, "there is nothing to release")
		if held := b.store.held("k"); held != "thief" {
			t.Errorf("%q holds the key, want the thief: it is nobody else's business", held)
		}
		b.wantIdle("the lease is over")
	})
}
