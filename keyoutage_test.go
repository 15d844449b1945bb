package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// Lock rides out transient trouble of every kind, looking again soon, with a new
// claim each time.
func TestTransientTrouble(t *testing.T) {
	for name, trouble := range map[string]step{
		"refused":             fail(errRefused),
		"reset":               fail(errReset),
		"applied, then reset": failAfter(errReset),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				b.store.from(opAcquire, trouble)
				waiting := b.locking(t.Context(), "k")
				b.until(14 * time.Second)
				b.store.from(opAcquire, nil)
				l := waiting.wantLease(t)
				waiting.wantEnd(t, 14*time.Second, 14500*time.Millisecond, "the next look finds the store well")
				sent := b.store.sent(opAcquire)
				for i, p := range gaps(sent) {
					wantBetween(t, "a pause of", p, outagePauseMin, outagePauseMax, "neither a flood nor a long wait")
					if sent[i].ID == sent[i+1].ID {
						t.Errorf("claim %s was sent twice, want a new one: a clean-up of the first may be on its way", sent[i].ID)
					}
				}
				b.unlock(l)
				b.until(20 * time.Second)
				if held := b.store.held("k"); held != "" {
					t.Errorf("%s holds the key, want nobody: all claims were given back", held)
				}
				b.wantIdle("the lease is unlocked")
			})
		})
	}
}

// An outage of max(TTL, 15 s) ends a Lock with ErrUnavailable and the store's
// own words; nothing of it is left.
func TestOutageHasALimit(t *testing.T) {
	for _, c := range []struct {
		name    string
		ttl     time.Duration
		trouble step
		limit   time.Duration
		slack   time.Duration
	}{
		{"refused", time.Second, fail(errRefused), minOutage, outagePauseMax},
		{"refused, long TTL", 20 * time.Second, fail(errRefused), 20 * time.Second, outagePauseMax},
		// The outage begins with the end of the first attempt.
		{"hanging", 30 * time.Second, hang, 30*time.Second + commandTimeout, commandTimeout + outagePauseMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(c.ttl))
				b.store.from(opAcquire, c.trouble)
				_, err := b.Lock(t.Context(), "k")
				wantErr(t, err, ErrUnavailable, "the outage was too long", ErrNotAcquired, ErrInvalid)
				if c.name != "hanging" {
					wantErr(t, err, errRefused, "the error tells the cause")
				}
				wantBetween(t, "Lock gave up at", b.at(), c.limit, c.limit+c.slack, "it rides out max(TTL, 15s)")
				b.until(b.at() + 20*time.Second)
				b.wantIdle("the queue has failed")
			})
		})
	}
}

// The outage is the key's: its queue fails together, whenever who came, except
// for those with a longer TTL.
func TestQueueFailsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		b.store.from(opAcquire, delay(20*time.Millisecond, fail(errRefused)))
		var waiting []*locking
		for range 3 {
			waiting = append(waiting, b.locking(t.Context(), "k"))
			b.until(b.at() + 5*time.Second - time.Millisecond)
		}
		patient := b.locking(t.Context(), "k", WithTTL(20*time.Second))
		for i, w := range waiting {
			w.wantEnd(t, minOutage, minOutage+outagePauseMax+40*time.Millisecond, "the outage had lasted 15s")
			wantErr(t, w.err, ErrUnavailable, "the outage was too long", ErrNotAcquired)
			if w.end != waiting[0].end {
				t.Errorf("waiter %d failed at %v, want %v: with its queue", i, w.end, waiting[0].end)
			}
		}
		patient.wantEnd(t, 20*time.Second, 20*time.Second+outagePauseMax+40*time.Millisecond, "its patience is its TTL of 20s, from the beginning of the outage")
		wantErr(t, patient.err, ErrUnavailable, "the outage was too long")
		if n := b.store.atOnce(opAcquire); n != 1 {
			t.Errorf("%d attempts ran at once, want 1: only the head asks", n)
		}
		b.wantIdle("the queue has failed")
	})
}

// An outage that ended a queue is over with it, even if the key is remembered for
// something else: an hour later one error is just one error.
func TestOutageIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		b.store.from(opAcquire, fail(errRefused))
		_, err := b.Lock(t.Context(), "k")
		wantErr(t, err, ErrUnavailable, "the outage was too long")
		b.wantIdle("the queue has failed")

		b.store.from(opAcquire, nil)
		b.lock(ContextWithOwner(t.Context(), "ann"), "k", WithoutRenewal())
		b.until(time.Minute) // lost, and remembered until it is unlocked
		b.store.from(opAcquire, fail(errRefused))
		_, err = b.Lock(t.Context(), "k")
		wantErr(t, err, ErrUnavailable, "the outage was too long")
		b.until(time.Hour)
		b.store.from(opAcquire, nil)
		b.store.next(opAcquire, fail(errRefused))
		b.lock(t.Context(), "k")
	})
}

// Any answer ends an outage: its time is not added to that of the next one.
func TestOutageEndsWithAnAnswer(t *testing.T) {
	for name, answer := range map[string]step{"refused": busy(unknownLeft, false)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(time.Second))
				b.store.from(opAcquire, fail(errRefused))
				waiting := b.locking(t.Context(), "k")
				b.until(12 * time.Second)
				b.store.next(opAcquire, answer)
				b.until(26 * time.Second)
				if waiting.over() {
					t.Fatalf("Lock gave up at %v with %v, want it to wait: the second outage lasts less than 15s", waiting.end, waiting.err)
				}
				b.store.from(opAcquire, nil)
				waiting.wantLease(t)
			})
		})
	}
}

// Trouble that needs a person ends Lock and TryLock at once, after one attempt,
// as the kind of error it is.
func TestPermanentTrouble(t *testing.T) {
	conflict := errors.New("it is a list")
	for name, c := range map[string]struct {
		err   error
		want  error
		words error
	}{
		"permission": {errNoPerm, ErrUnavailable, errNoPerm},
		"memory":     {&driver.StoreError{Err: errReset, Permanent: true}, ErrUnavailable, errReset},
		"conflict":   {errors.Join(ErrConflict, conflict), ErrConflict, conflict},
		"misuse":     {ErrInvalid, ErrInvalid, ErrInvalid},
	} {
		for op, lock := range map[string]func(Locker, context.Context, string, ...LockOption) (*Lease, error){
			"Lock": Locker.Lock, "TryLock": Locker.TryLock,
		} {
			t.Run(name+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					b.store.from(opAcquire, fail(c.err))
					_, err := lock(b, t.Context(), "k")
					wantErr(t, err, c.want, "waiting does not help", ErrNotAcquired)
					wantErr(t, err, c.words, "the error has the store's words")
					if c.want != ErrUnavailable {
						wantErr(t, err, c.want, "the store works", ErrUnavailable)
					}
					wantBetween(t, op+" returned at", b.at(), 0, 0, "it did not wait")
					b.until(5 * time.Second)
					b.wantSent(opAcquire, 1, "one attempt")
					b.wantIdle("the call has failed")
				})
			})
		}
	}
}

// TryLock is over after one failed attempt, and after the command's time if no
// answer comes.
func TestTryLockInAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		trouble step
		ttl     time.Duration
		took    time.Duration
		cleanUp int
	}{
		"refused":             {fail(errRefused), time.Minute, 0, 0},
		"reset":               {fail(errReset), time.Minute, 0, 2},
		"hanging":             {hang, time.Minute, commandTimeout, 2},
		"hanging, short TTL":  {hang, time.Second, time.Second, 2},
		"applied, reply lost": {loseReply, time.Minute, commandTimeout, 1},
		"applied, then reset": {failAfter(errReset), time.Minute, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(c.ttl))
				b.store.from(opAcquire, c.trouble)
				_, err := b.TryLock(context.Background(), "k")
				wantErr(t, err, ErrUnavailable, "the attempt failed", ErrNotAcquired)
				wantBetween(t, "TryLock returned at", b.at(), c.took, c.took, "it makes one attempt")
				b.until(30 * time.Second)
				sent := b.wantSent(opAcquire, 1, "it makes one attempt")
				for _, r := range b.wantSent(opRelease, c.cleanUp, "what may have been applied is cleaned up, once more a second later if nothing was there") {
					if r.ID != sent[0].ID {
						t.Errorf("%s was released, want %s: the claim of the attempt", r.ID, sent[0].ID)
					}
				}
				if held := b.store.held("k"); held != "" {
					t.Errorf("%s holds the key, want nobody: no lease came of it", held)
				}
				b.wantIdle("TryLock failed")
			})
		})
	}
}

// A wait that ends in contention is no outage because another caller's release is slow.
func TestSlowReleaseIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opRelease, delay(290*time.Millisecond, obey))
		l := b.lock(t.Context(), "k")
		waiting := b.locking(t.Context(), "k", WithWait(250*time.Millisecond))
		b.unlocking(t.Context(), l)
		<-waiting.done
		wantErr(t, waiting.err, ErrNotAcquired, "the key was not free in time", ErrUnavailable)
	})
}
