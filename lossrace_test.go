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

// A caller that asks a lease whose time is over is told so, even if the timer has not
// had its turn: here none fires.
func TestLossIsKnownWhenAsked(t *testing.T) {
	type held struct {
		b     *bench
		l     *Lease
		ctx   context.Context // of the lease
		value context.Context // a child that only adds a value
	}
	type key struct{}
	for question, ask := range map[string]func(held) error{
		"Err":            func(h held) error { return h.ctx.Err() },
		"Err of a child": func(h held) error { return h.value.Err() },
		"Cause":          func(h held) error { return context.Cause(h.value) },
		"Done": func(h held) error {
			select {
			case <-h.ctx.Done():
				return ErrLost
			default:
				return nil
			}
		},
		"Lost": func(h held) error {
			if lostIsClosed(h.l) {
				return ErrLost
			}
			return nil
		},
		"Holds": func(h held) error {
			if h.l.Holds() == 0 {
				return ErrLost
			}
			return nil
		},
		"a new context":    func(h held) error { return h.l.Context(context.Background()).Err() },
		"Lease.Err":        func(h held) error { return h.l.Err() },
		"Renew":            func(h held) error { return h.l.Renew(context.Background()) },
		"Unlock":           func(h held) error { return h.l.Unlock(context.Background()) },
		"Lock under it":    func(h held) error { _, err := h.b.Lock(h.ctx, h.l.Key()); return err },
		"TryLock under it": func(h held) error { _, err := h.b.TryLock(h.ctx, h.l.Key()); return err },
		"Lock by its owner": func(h held) error {
			_, err := h.b.Lock(ContextWithOwner(context.Background(), h.l.Owner()), h.l.Key())
			return err
		},
		"TryLock by its owner": func(h held) error {
			_, err := h.b.TryLock(ContextWithOwner(context.Background(), h.l.Owner()), h.l.Key())
			return err
		},
	} {
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
				if err := ask(held{b, l, ctx, context.WithValue(ctx, key{}, 1)}); !errors.Is(err, ErrLost) {
					t.Errorf("%s: %v, want %v: its time is over", question, err, ErrLost)
				}
				b.wantSent(opRenew, 0, "what is lost is not renewed")
			})
		})
	}
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
			time.Sleep(988*time.Millisecond - time.Duration(rand.N(2)))
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
