package locker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Waiters in one process are served first come, first served, at the cost of one
// attempt each.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		holder := b.lock(t.Context(), "k")
		var waiting []*locking
		for range 5 {
			waiting = append(waiting, b.locking(t.Context(), "k"))
		}
		b.until(10 * time.Second)
		b.wantSent(opAcquire, 1, "a waiter behind a local holder has no reason to ask the store")
		for i, w := range waiting {
			if w.over() {
				t.Fatalf("waiter %d was served before its turn", i)
			}
			b.unlock(holder)
			synctest.Wait()
			holder = w.wantLease(t)
			w.wantEnd(t, b.at(), b.at(), "a release here wakes the next one here")
			b.wantSent(opAcquire, i+2, "each turn takes one attempt")
		}
		b.unlock(holder)
		b.wantIdle("all leases are unlocked")
	})
}

// Only the head of a queue talks to the store, and when it leaves the next one
// takes its turn at once.
func TestOneContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.seize("k", "stranger", time.Hour)
		b.store.from(opAcquire, delay(20*time.Millisecond, obey))
		var waiting []*locking
		var leave []context.CancelFunc
		for i := range 4 {
			ctx, cancel := context.WithCancel(ContextWithOwner(t.Context(), fmt.Sprint("owner ", i)))
			defer cancel()
			waiting, leave = append(waiting, b.locking(ctx, "k")), append(leave, cancel)
		}
		asked := func() []string {
			var owners []string
			for _, c := range b.store.sent(opAcquire) {
				owners = append(owners, c.Owner)
			}
			return slices.Compact(owners)
		}
		b.until(3 * time.Second)
		if got, want := asked(), []string{"owner 0"}; !slices.Equal(got, want) {
			t.Errorf("asked: %v, want %v: only the head asks", got, want)
		}
		if n := b.store.atOnce(opAcquire); n != 1 {
			t.Errorf("%d attempts ran at once, want 1: one contender for each process", n)
		}
		leave[1]()
		leave[0]()
		synctest.Wait()
		if sent := b.store.sent(opAcquire); sent[len(sent)-1].at != b.at() {
			t.Errorf("last attempt at %v, want %v: whoever leaves passes the turn on", sent[len(sent)-1].at, b.at())
		}
		b.until(6 * time.Second)
		if got, want := asked(), []string{"owner 0", "owner 2"}; !slices.Equal(got, want) {
			t.Errorf("asked: %v, want %v: the one who left behind the head is skipped", got, want)
		}
		if waiting[2].over() || waiting[3].over() || !waiting[0].over() || !waiting[1].over() {
			t.Error("want the first two, who left, to be over, and the others to wait")
		}
		leave[2]()
		leave[3]()
		b.until(7 * time.Second) // the attempt under way ends
		b.wantIdle("all waiters have left")
	})
}

// TryLock fails without a round trip while this Locker holds the key, gives it
// back or queues for it.
func TestTryLockWithoutAsking(t *testing.T) {
	for name, begin := range map[string]func(b *bench){
		"held": func(b *bench) { b.lock(b.t.Context(), "k") },
		"being released": func(b *bench) {
			l := b.lock(b.t.Context(), "k")
			b.store.next(opRelease, delay(time.Second, obey))
			b.unlocking(b.t.Context(), l)
		},
		"queued for": func(b *bench) {
			b.store.seize("k", "stranger", time.Hour)
			b.locking(b.t.Context(), "k", WithWait(time.Minute))
		},
		"another key is not concerned": func(b *bench) { b.lock(b.t.Context(), "other") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				begin(b)
				before := len(b.store.sent(opAcquire))
				_, err := b.TryLock(t.Context(), "k")
				asked := len(b.store.sent(opAcquire)) - before
				if name == "another key is not concerned" {
					if err != nil || asked != 1 {
						t.Errorf("TryLock of a free key: %v after %d attempts, want a lease after 1", err, asked)
					}
					return
				}
				wantErr(t, err, ErrNotAcquired, "the key is taken", ErrUnavailable)
				if asked != 0 {
					t.Errorf("%d attempts, want none: this Locker knows the answer", asked)
				}
			})
		})
	}
}

// TryLock makes one attempt whatever WithWait says, and does not queue.
func TestTryLockDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying, WithWait(time.Minute))
		b.store.seize("k", "stranger", time.Hour)
		_, err := b.TryLock(t.Context(), "k", WithWait(time.Hour))
		wantErr(t, err, ErrNotAcquired, "the key is taken")
		wantBetween(t, "TryLock returned at", b.at(), 0, 0, "it never waits")
		b.until(time.Minute)
		if c := b.wantSent(opAcquire, 1, "one attempt")[0]; c.Wait {
			t.Error("the attempt said Wait, want not: nobody will")
		}
		b.wantSent(opWatch, 0, "nobody waits")
		b.wantIdle("TryLock failed")
	})
}

// A key freed here is offered to the queue when the release has been answered,
// or has failed for good: nobody waits for the rest of a hold that nobody has.
func TestQueueGoesOnAfterAFailedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		holder := b.lock(t.Context(), "k", WithTTL(7*time.Second))
		b.store.from(opRelease, hang)
		next := b.locking(t.Context(), "k")
		wantErr(t, holder.Unlock(ended(t)), ErrUnavailable, "no release was answered")
		b.until(20 * time.Second)
		next.wantEnd(t, 7*time.Second, 7*time.Second+5*time.Millisecond, "the TTL frees the key, and the holder's lease had 7s")
	})
}

// A Lock that waits for its own Locker says so: it may be within the section that it
// waits for.
func TestWaitForOneself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.lock(t.Context(), "k")
		_, err := b.Lock(t.Context(), "k", WithWait(time.Second))
		wantErr(t, err, ErrNotAcquired, "it is held")
		if !strings.Contains(err.Error(), "this Locker holds it") {
			t.Errorf("the error does not say by whom: %v", err)
		}
		b.store.seize("other", "x", time.Minute)
		_, err = b.Lock(t.Context(), "other", WithWait(time.Second))
		if strings.Contains(err.Error(), "this Locker holds it") {
			t.Errorf("another holds it: %v", err)
		}
	})
}
