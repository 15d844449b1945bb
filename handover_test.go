package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// handingOver is a bench whose store reserves tokens, and whose key "k" is held with
// tokens for all hand-overs; n calls wait for it.
func handingOver(t *testing.T, k kind, n int, call []LockOption, opts ...Option) (b *bench, holder *Lease, waiting []*locking) {
	t.Helper()
	b = newBench(t, k, opts...)
	b.store.blocks = true
	first := b.lock(t.Context(), "k", call...)
	for range n + 1 {
		waiting = append(waiting, b.locking(t.Context(), "k", call...))
	}
	b.unlock(first)
	return b, waiting[0].wantLease(t), waiting[1:]
}

// The last Unlock hands the lock to the next waiter of the process without asking the
// store, with a token and an owner of its own, 16 times in a row.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 20, nil)
		asked := 2
		for i, w := range waiting {
			before := lease
			b.unlock(lease)
			synctest.Wait()
			lease = w.wantLease(t)
			if i == defaultHandOvers {
				asked++ // other processes had their turn
			}
			b.wantSent(opAcquire, asked, "a hand-over takes no command")
			b.wantSent(opRelease, asked-1, "a hand-over takes no command")
			if lease.Token() <= before.Token() || lease.Owner() == before.Owner() {
				t.Errorf("lease %d has token %d and owner %q after token %d and %q", i, lease.Token(), lease.Owner(), before.Token(), before.Owner())
			}
			if n, old := lease.Holds(), before.Holds(); n != 1 || old != 0 || !errors.Is(before.Err(), ErrNotHeld) {
				t.Errorf("%d holds, and of the lease before %d with %v", n, old, before.Err())
			}
			wantErr(t, before.Unlock(t.Context()), ErrNotHeld, "it was unlocked")
		}
		last := lease.Token()
		b.unlock(lease)
		if next := b.lock(t.Context(), "k"); next.Token() <= last {
			t.Errorf("token %d after %d", next.Token(), last)
		} else {
			b.unlock(next)
		}
		b.wantEvents(map[EventKind]int{EventAcquired: 23, EventReleased: 23}, "each hold is one of each")
		marked := 0
		for _, e := range b.events()[EventAcquired] {
			if e.HandOver {
				marked++
			}
		}
		if marked != 19 {
			t.Errorf("%d grants are marked as hand-overs, want 19", marked)
		}
		b.wantIdle("all leases are unlocked")
	})
}

// Hand-overs in a row end after a time as well; a section that is longer is followed by
// none.
func TestHandOversAreBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 3, nil, WithHandOver(10, 30*time.Millisecond))
		for i, w := range waiting {
			time.Sleep(20 * time.Millisecond) // on the bubble's clock: how long a section takes is the subject
			b.unlock(lease)
			lease = w.wantLease(t)
			b.wantSent(opAcquire, []int{2, 3, 3}[i], "after 40 ms it is over")
		}
		b.unlock(lease)
	})
}

func TestNoHandOver(t *testing.T) {
	none := func(*bench, *Lease) {}
	for name, c := range map[string]struct {
		opts   []Option
		call   []LockOption // of all but the waiter
		waiter []LockOption
		owner  string // the waiter's
		before func(b *bench, holder *Lease)
	}{
		"switched off":            {opts: []Option{WithoutHandOver()}, before: none},
		"another TTL":             {waiter: []LockOption{WithTTL(time.Minute)}, before: none},
		"renewal, and none":       {waiter: []LockOption{WithoutRenewal()}, before: none},
		"a named owner":           {owner: "named", before: none},
		"less than half of a TTL": {opts: []Option{WithHandOver(5, time.Second)}, call: []LockOption{WithTTL(time.Second), WithoutRenewal()}, before: func(*bench, *Lease) { time.Sleep(600 * time.Millisecond) }}, // on the bubble's clock
		"a store without a block": {before: func(b *bench, l *Lease) { l.claim.setHandOvers(0) }},
		"a re-entry under way":    {before: func(_ *bench, l *Lease) { l.claim.sending = true }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, c.opts...)
				b.store.blocks = true
				first := b.lock(t.Context(), "k", c.call...)
				second := b.locking(t.Context(), "k", c.call...)
				ctx := t.Context()
				if c.owner != "" {
					ctx = ContextWithOwner(ctx, c.owner)
				}
				third := b.locking(ctx, "k", append(c.call, c.waiter...)...)
				b.unlock(first)
				holder := second.wantLease(t)
				c.before(b, holder)
				b.unlock(holder)
				b.unlock(third.wantLease(t))
				b.wantSent(opRelease, 3, "each Unlock asks the store")
				b.wantIdle("all leases are unlocked")
			})
		})
	}
}

// A renewal that was sent before a hand-over speaks of the claim: its denial ends the
// lease that has the claim by then.
func TestDenialReachesThePresentLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 1, nil, WithRenewInterval(5*time.Millisecond))
		b.store.from(opRenew, delay(10*time.Millisecond, fail(ErrLost)))
		b.until(7 * time.Millisecond)
		b.wantSent(opRenew, 1, "it is under way")
		b.unlock(lease)
		next := waiting[0].wantLease(t)
		b.until(20 * time.Millisecond)
		if !lostIsClosed(next) || lostIsClosed(lease) {
			t.Error("want the present lease lost, and not the one that was unlocked")
		}
		wantErr(t, next.Unlock(t.Context()), ErrLost, "it is lost")
		b.wantEvents(map[EventKind]int{EventAcquired: 3, EventReleased: 2, EventLost: 1}, "one hold was lost")
		b.wantIdle("all leases are unlocked")
	})
}

// WithMaxHold counts from the hand-over, for each lease.
func TestMaxHoldCountsFromTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 2, []LockOption{WithMaxHold(30 * time.Millisecond)})
		for _, w := range waiting {
			b.until(b.at() + 8*time.Millisecond)
			b.unlock(lease)
			lease = w.wantLease(t)
		}
		b.wantSent(opAcquire, 2, "they were handed over")
		taken := b.at()
		<-lease.Lost()
		wantBetween(t, "lost at", b.at(), taken+30*time.Millisecond, taken+30*time.Millisecond, "30 ms after it was taken")
		wantErr(t, lease.Unlock(t.Context()), ErrLost, "its limit ended it")
	})
}

// A context of the lease that was handed over neither re-enters the next one nor lives
// on.
func TestOldContextDoesNotReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 1, nil)
		ctx := lease.Context(t.Context())
		b.unlock(lease)
		next := waiting[0].wantLease(t)
		wantErr(t, ctx.Err(), context.Canceled, "the lease is over")
		_, err := b.TryLock(context.WithoutCancel(ctx), "k")
		wantErr(t, err, ErrNotAcquired, "another goroutine holds the lock")
		b.unlock(next)
		b.wantIdle("all leases are unlocked")
	})
}

// A waiter that gives up while it is handed the lock leaves it to the next one, and the
// last one to the store.
func TestGivingUpAtTheHandOver(t *testing.T) {
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, plain)
			b.store.blocks = true
			first := b.lock(t.Context(), "k")
			second := b.locking(t.Context(), "k")
			ctx, cancel := context.WithCancel(t.Context())
			var waiting []*locking
			waiting = append(waiting, b.locking(ctx, "k"))
			if n == 2 {
				waiting = append(waiting, b.locking(t.Context(), "k"))
			}
			b.unlock(first)
			holder := second.wantLease(t)
			// Both at once, as far as the waiter can tell.
			s := b.stripeOf("k")
			s.mu.Lock()
			head := s.keys["k"].head
			cancel()
			s.mu.Unlock()
			if !offer(t.Context(), holder) && head.ctx.Err() == nil {
				t.Fatal("want an offer or an end")
			}
			synctest.Wait()
			if waiting[0].wantEnded(t); n == 2 {
				b.unlock(waiting[1].wantLease(t))
			}
			if holder.state == leaseHeld {
				b.unlock(holder) // the waiter was faster
			}
			synctest.Wait()
			if held := b.store.held("k"); held != "" {
				t.Errorf("%q holds the key", held)
			}
			b.wantIdle("all are through")
		})
	}
}

// offer is the part of l's Unlock that offers its claim to the next waiter.
func offer(ctx context.Context, l *Lease) bool {
	defer l.claim.lock().Unlock()
	if !l.claim.offer(ctx, l) {
		return false
	}
	l.state = leaseDone
	return true
}

// Close frees a lock that is offered, as its last Unlock would have.
func TestCloseAtTheHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lease, waiting := handingOver(t, plain, 1, nil)
		if !offer(t.Context(), lease) {
			t.Fatal("want an offer")
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if <-waiting[0].done; waiting[0].err == nil { // it was faster
			b.unlock(waiting[0].lease)
		}
		if held := b.store.held("k"); held != "" {
			t.Errorf("%q holds the key", held)
		}
	})
}

// wantEnded wants the call to have failed because its context ended.
func (l *locking) wantEnded(t *testing.T) {
	t.Helper()
	<-l.done
	wantErr(t, l.err, context.Canceled, "its context ended")
}

// Many goroutines that lock, give up, overstay and close: one at a time is inside, with
// growing tokens, and nothing is left.
func TestHandOverUnderLoad(t *testing.T) {
	f := newFake()
	f.blocks = true
	l, err := New(f, WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // a test's own, to see that it is never contended
	var last int64
	handed, grants := 0, 0
	section := func(ctx context.Context) {
		lease, err := l.Lock(ctx, "k")
		if err != nil {
			if !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			return
		}
		if !mu.TryLock() {
			t.Error("two are inside")
			return
		}
		if grants++; lease.Token() <= last {
			t.Errorf("token %d after %d", lease.Token(), last)
		}
		if last = lease.Token(); lease.tenure != &lease.claim.firstTenure {
			handed++
		}
		mu.Unlock()
		runtime.Gosched() // on one processor others would never come to wait
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 300 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if rand.N(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, rand.N(500*time.Microsecond))
				}
				section(ctx)
				cancel()
			}
		})
	}
	all.Wait()
	if handed < grants/10 {
		t.Errorf("%d of %d grants were handed over", handed, grants)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if held := f.held("k"); held != "" {
		t.Errorf("%q holds the key after Close", held)
	}
}

// A call with metadata of its own neither takes over a claim nor leaves its claim to the next waiter.
func TestNoHandOverOfMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithMetadata("job", "all"))
		b.store.blocks = true
		own := WithMetadata("job", "own")
		lease := b.lock(t.Context(), "k")
		waiting := []*locking{b.locking(t.Context(), "k"), b.locking(t.Context(), "k", own), b.locking(t.Context(), "k", own), b.locking(t.Context(), "k")}
		for i, want := range []string{"job=all", "job=own", "job=own", "job=all"} {
			b.unlock(lease)
			synctest.Wait()
			lease = waiting[i].wantLease(t)
			if id := lease.claim.ID; !strings.Contains(id, want) {
				t.Errorf("lease %d has the claim %q, want %q in it", i, id, want)
			}
			if own := want == "job=own"; own && lease.claim.handOvers != 0 {
				t.Errorf("lease %d may be handed over", i)
			}
		}
		b.unlock(lease)
	})
}
