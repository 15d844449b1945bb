package locker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// LetExpire leaves the key locked until its TTL is over, and the Locker forgets it at once.
func TestLetExpire(t *testing.T) {
	for _, named := range []bool{false, true} { // what a named owner has lost is remembered
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if named {
					ctx = ContextWithOwner(ctx, "ann")
				}
				b := newBench(t, plain, WithTTL(3*time.Second))
				l := b.lock(ctx, "k")
				section, lost := l.Context(context.Background()), l.Lost()
				b.until(1500 * time.Millisecond)
				b.wantSent(opRenew, 1, "a third of the TTL has passed")
				if err := l.LetExpire(); err != nil {
					t.Fatalf("LetExpire: %v, want nil", err)
				}
				if b.keys() != 0 {
					t.Errorf("the Locker knows %d keys after LetExpire, want none", b.keys())
				}
				wantErr(t, section.Err(), context.Canceled, "the section is over", ErrLost)
				wantErr(t, l.Err(), ErrNotHeld, "the lease has ended", ErrLost)
				wantErr(t, l.LetExpire(), ErrNotHeld, "LetExpire was called before")
				wantErr(t, l.Unlock(t.Context()), ErrNotHeld, "LetExpire was called before")
				wantErr(t, l.Renew(t.Context()), ErrNotHeld, "LetExpire was called before")

				_, err := b.TryLock(t.Context(), "k")
				wantErr(t, err, ErrNotAcquired, "the store has the key still")
				b.wantSent(opAcquire, 2, "the store was asked: this process does not hold the key any more")
				b.locking(t.Context(), "k").wantLease(t)
				wantBetween(t, "the next Lock returned at", b.at(), 4*time.Second, 4100*time.Millisecond, "3s after the renewal at 1s")
				b.wantSent(opRenew, 1, "the claim was taken off renewal")
				b.wantSent(opRelease, 0, "the key was left to its TTL")
				b.wantEvents(map[EventKind]int{EventAcquired: 2, EventRenewed: 1, EventNotAcquired: 1, EventLetExpire: 1}, "that is no loss")
				if e := b.events()[EventLetExpire][0]; e.Key != "k" || e.Token != 1 || e.Duration != 1500*time.Millisecond || e.Err != nil {
					t.Errorf("event %+v, want that of key k, token 1, held for 1.5s, without an error", e)
				}
				select {
				case <-lost:
					t.Error("Lost is closed, want it open: that is no loss")
				default:
				}
			})
		})
	}
}

// The last of several leases to end decides.
func TestLetExpireOfSeveralLeases(t *testing.T) {
	for of, k := range map[string]kind{"plain": plain, "counting": counting} {
		for name, c := range map[string]struct {
			innerLeft, outerLeft bool
		}{
			"inner is left, outer unlocked": {true, false},
			"inner is unlocked, outer left": {false, true},
			"both are left":                 {true, true},
		} {
			t.Run(of+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, k, WithTTL(3*time.Second))
					end := func(l *Lease, left bool) {
						t.Helper()
						if !left {
							b.unlock(l)
						} else if err := l.LetExpire(); err != nil {
							t.Errorf("LetExpire: %v, want nil", err)
						}
						synctest.Wait()
					}
					outer := b.lock(t.Context(), "k")
					inner := b.lock(outer.Context(t.Context()), "k")
					end(inner, c.innerLeft)
					if err := outer.Err(); err != nil || outer.Holds() != 1 {
						t.Errorf("the outer lease: %v and %d holds, want it held once", err, outer.Holds())
					}
					if ns := b.holdsSent(); k == counting && (len(ns) != 2 || ns[1] != 1) {
						t.Errorf("counts %v sent, want 2 and then 1", ns)
					}
					b.until(1500 * time.Millisecond)
					b.wantSent(opRenew, 1, "the outer lease is renewed")
					end(outer, c.outerLeft)
					if held := b.store.held("k") != ""; held != c.outerLeft {
						t.Errorf("held in the store: %v, want %v", held, c.outerLeft)
					}
					b.wantIdle("both leases have ended")
					b.until(4500 * time.Millisecond)
					if held := b.store.held("k"); held != "" {
						t.Errorf("%s holds the key after its TTL, want nobody", held)
					}
				})
			})
		}
	}
}

// A short grant is renewed once, in the background, so that the key stays for the TTL.
func TestLetExpireOfAShortGrant(t *testing.T) {
	for name, renew := range map[string]step{"obeyed": obey, "at the second try": fail(errReset)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSticky(t, time.Second)
				l := s.lock(t.Context(), "k")
				s.store.next(opRenew, renew)
				if err := l.LetExpire(); err != nil {
					t.Fatal(err)
				}
				s.until(DefaultTTL - time.Millisecond)
				if s.store.held("k") == "" {
					t.Errorf("the key is free at %v, before the TTL is over", s.at())
				}
				s.until(DefaultTTL + time.Second)
				s.wantFree("k", "the TTL is over")
				s.wantIdle("the lease has ended")
			})
		})
	}
}

// A short grant that was lost is not taken back.
func TestLetExpireOfAShortGrantThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second)
		l := s.lock(t.Context(), "k")
		s.store.free("k")
		if err := l.LetExpire(); err != nil {
			t.Fatal(err)
		}
		s.until(time.Second)
		s.wantFree("k", "somebody has deleted it")
		s.wantSent(opRenew, 1, "the store denies it")
		s.wantIdle("the lease has ended")
	})
}

// A lease that was lost before says so, and its owner may lock anew.
func TestLetExpireAfterTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		ann := ContextWithOwner(t.Context(), "ann")
		l := b.lock(ann, "k")
		b.until(2 * time.Second)
		_, err := b.TryLock(ann, "k")
		wantErr(t, err, ErrLost, "ann has not given back what she lost")
		wantErr(t, l.LetExpire(), ErrLost, "the lease has expired")
		wantErr(t, l.LetExpire(), ErrNotHeld, "LetExpire was called before")
		b.wantIdle("the lost lease has ended")
		b.wantSent(opRelease, 0, "LetExpire releases nothing")
		b.unlock(b.lock(ann, "k"))
		b.wantEvents(map[EventKind]int{EventAcquired: 2, EventNotAcquired: 1, EventLost: 1, EventReleased: 1}, "one end each")
	})
}

func TestLetExpireAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		_ = b.Close()
		if err := l.LetExpire(); err != nil {
			t.Errorf("LetExpire after Close: %v, want nil: the key is left to its TTL", err)
		}
		wantErr(t, l.Unlock(t.Context()), ErrNotHeld, "LetExpire was called before")
		b.wantSent(opRelease, 0, "the key is left to its TTL")
	})
}

// LetExpire does not undo an Unlock, of which a release may be under way.
func TestLetExpireAfterAnUnlockWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		b.store.next(opRelease, fail(errNoPerm))
		wantErr(t, l.Unlock(t.Context()), ErrUnavailable, "the store refuses")
		wantErr(t, l.LetExpire(), ErrNotHeld, "Unlock was called before")
		b.unlock(l)
	})
}

// Waiters of this process wait for the TTL's end: the lock is not handed over to them.
func TestLetExpireBeforeAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying, WithTTL(3*time.Second))
		l := b.lock(t.Context(), "k")
		waiting := b.locking(t.Context(), "k")
		if err := l.LetExpire(); err != nil {
			t.Fatalf("LetExpire: %v, want nil", err)
		}
		b.unlock(waiting.wantLease(t))
		wantBetween(t, "the waiter was granted the lock at", waiting.end, 3*time.Second, 3100*time.Millisecond, "the TTL is over")
		b.until(waiting.end + 2*time.Second)
		b.wantIdle("all leases have ended")
	})
}

// The answer of a renewal that was under way changes nothing.
func TestLetExpireDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(3*time.Second))
		l := b.lock(t.Context(), "k")
		b.store.next(opRenew, delay(200*time.Millisecond, fail(ErrLost)))
		b.until(1100 * time.Millisecond)
		if err := l.LetExpire(); err != nil {
			t.Fatalf("LetExpire: %v, want nil", err)
		}
		b.until(5 * time.Second)
		b.wantSent(opRenew, 1, "renewal has stopped")
		b.wantEvents(map[EventKind]int{EventAcquired: 1, EventLetExpire: 1}, "one end")
		b.wantIdle("the lease has ended")
	})
}
