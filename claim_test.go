package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
				b.wantEvents(map[EventKind]int{EventAcquired: 1, EventAtRisk: 1, EventLost: 1, EventRenewFailed: len(b.events()[EventRenewFailed])}, "lost once")
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

// A lease is not handed out when its end has come already.
func TestGrantIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		b.store.next(opAcquire, replyAfter(900*time.Millisecond))
		l, err := b.Lock(t.Context(), "k", WithMaxHold(50*time.Millisecond))
		if err == nil && errors.Is(l.Err(), ErrLost) {
			t.Errorf("Lock returned a lease that is over: %v", l.Err())
		}
	})
}

// A caller that asks a lease whose time is over is told so, even if the timer has not
// had its turn: here none fires.
func TestLossIsKnownWhenAsked(t *testing.T) {
	for question, ask := range questionsAboutALease {
		t.Run(question, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
				l := b.lock(ContextWithOwner(t.Context(), "ann"), "k")
				ctx := l.Context(t.Context())
				b.sched.Close()
				b.until(988*time.Millisecond - 1)
				if err := l.Err(); err != nil {
					t.Fatalf("Err before the deadline: %v, want nil", err)
				}
				b.until(988 * time.Millisecond)
				if err := ask(askedLease{b, l, ctx, context.WithValue(ctx, valueKey{}, 1)}); !errors.Is(err, ErrLost) {
					t.Errorf("%s: %v, want %v: its time is over", question, err, ErrLost)
				}
				b.wantSent(opRenew, 0, "what is lost is not renewed")
			})
		})
	}
}

// An askedLease is what a question about a lease needs.
type askedLease struct {
	b     *bench
	l     *Lease
	ctx   context.Context // of the lease
	value context.Context // a child that only adds a value
}

var questionsAboutALease = map[string]func(askedLease) error{
	"Err":            func(h askedLease) error { return h.ctx.Err() },
	"Err of a child": func(h askedLease) error { return h.value.Err() },
	"Cause":          func(h askedLease) error { return context.Cause(h.value) },
	"Done": func(h askedLease) error {
		select {
		case <-h.ctx.Done():
			return ErrLost
		default:
			return nil
		}
	},
	"Lost": func(h askedLease) error {
		if lostIsClosed(h.l) {
			return ErrLost
		}
		return nil
	},
	"Holds": func(h askedLease) error {
		if h.l.Holds() == 0 {
			return ErrLost
		}
		return nil
	},
	"a new context":    func(h askedLease) error { return h.l.Context(context.Background()).Err() },
	"Lease.Err":        func(h askedLease) error { return h.l.Err() },
	"Renew":            func(h askedLease) error { return h.l.Renew(context.Background()) },
	"Unlock":           func(h askedLease) error { return h.l.Unlock(context.Background()) },
	"Lock under it":    func(h askedLease) error { _, err := h.b.Lock(h.ctx, h.l.Key()); return err },
	"TryLock under it": func(h askedLease) error { _, err := h.b.TryLock(h.ctx, h.l.Key()); return err },
	"Lock by its owner": func(h askedLease) error {
		_, err := h.b.Lock(ContextWithOwner(context.Background(), h.l.Owner()), h.l.Key())
		return err
	},
	"TryLock by its owner": func(h askedLease) error {
		_, err := h.b.TryLock(ContextWithOwner(context.Background(), h.l.Owner()), h.l.Key())
		return err
	},
}

// A lease whose time is over makes this Locker ask the store again, even if the timer
// has not had its turn.
func TestTryLockAsksAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		b.lock(t.Context(), "k")
		b.sched.Close()
		b.until(988 * time.Millisecond)
		_, err := b.TryLock(t.Context(), "k")
		wantErr(t, err, ErrNotAcquired, "in the store the TTL is not over")
		b.wantSent(opAcquire, 2, "no caller of this Locker holds the key")
	})
}

// A parent context of the user's that blocks holds up neither the loss of other
// leases, nor a TryLock, nor Close.
func TestLossWithBlockingParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		parent := newStuckContext(t.Context())
		defer close(parent.proceed)
		var all []*Lease
		for i := range 5 {
			l := b.lock(t.Context(), fmt.Sprint("k", i))
			_ = l.Context(parent)
			all = append(all, l)
		}
		parent.values.Store(true)
		<-parent.stuck
		synctest.Wait()
		for i, l := range all {
			if !lostIsClosed(l) {
				t.Errorf("lease %d is not lost at %v, want it lost at 988ms", i, b.at())
			}
		}
		_, err := b.TryLock(t.Context(), "k0")
		wantErr(t, err, ErrNotAcquired, "in the store the TTL is not over")
		b.wantSent(opAcquire, 6, "no caller of this Locker holds it")
		_ = b.Close()
		wantBetween(t, "Close returned at", b.at(), 988*time.Millisecond, 988*time.Millisecond, "it waits for no context")
	})
}

// An Unlock in the very moment of the deadline ends as a loss or as a release, and is
// told as one of them.
func TestUnlockAtTheDeadline(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
			l := b.lock(t.Context(), "k")
			time.Sleep(988*time.Millisecond - time.Duration(rand.N(2))) // on the bubble's clock: at the deadline, or just before it
			err := l.Unlock(t.Context())
			lost := lostIsClosed(l)
			if lost != errors.Is(err, ErrLost) {
				t.Errorf("Unlock says %v, and Lost is closed: %v; want them to agree", err, lost)
			}
			want := map[EventKind]int{EventAcquired: 1, EventReleased: 1}
			if lost {
				want = map[EventKind]int{EventAcquired: 1, EventLost: 1}
			}
			b.wantEvents(want, "it ended once")
			b.wantIdle("the lease is unlocked")
		})
	}
}
