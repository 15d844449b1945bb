package locker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Without signals a waiter looks every 10 to 100 ms, soon at first, and not in
// step with others.
func TestPolling(t *testing.T) {
	for name, c := range map[string]struct {
		k    kind
		busy step
	}{
		"no notifier":                        {plain, busy(unknownLeft, false)},
		"a holder that sends no signals":     {notifying, busy(unknownLeft, true)},
		"a holder whose lease lasts an hour": {plain, busy(time.Hour, false)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.k)
				b.store.from(opAcquire, c.busy)
				_, err := b.Lock(t.Context(), "k", WithWait(20*time.Second))
				wantErr(t, err, ErrNotAcquired, "the key stayed taken")
				b.wantSent(opWatch, 0, "no signal would come")
				pauses := gaps(b.store.sent(opAcquire))
				for i, p := range pauses {
					wantBetween(t, "a pause of", p, pollMin, pollMax, "waiters poll every 10 to 100 ms")
					if most := pollMin << (i + 1); i < 3 {
						wantBetween(t, "an early pause of", p, pollMin, most, "pauses grow from the least one")
					}
				}
				slices.Sort(pauses)
				if n := len(slices.Compact(pauses)); n < 100 {
					t.Errorf("%d different pauses in 20s, want hundreds: jitter keeps waiters apart", n)
				}
			})
		})
	}
}

// A waiter looks just after the end of the holder's lease, whatever it waits
// for, and a lock that expired is taken then.
func TestLookWhenTheHoldersLeaseEnds(t *testing.T) {
	for _, k := range []kind{plain, notifying} {
		for _, left := range []time.Duration{0, time.Millisecond, 35 * time.Millisecond, 400 * time.Millisecond, 5 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				b.store.seize("k", "stranger", left)
				b.lock(t.Context(), "k")
				wantBetween(t, "granted at", b.at(), left, left+6*time.Millisecond, "the holder's lease was over by then")
			})
		}
	}
}

// With a Watch a waiter sleeps until a signal, and looks about once a second in
// case one was lost.
func TestWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		waiting := b.locking(t.Context(), "k")
		sent := b.wantSent(opAcquire, 2, "a release may have come before the watch stood: one more look")
		if sent[0].Wait || !sent[1].Wait {
			t.Errorf("Wait is %v, %v, want false, true: it says that there is a Watch", sent[0].Wait, sent[1].Wait)
		}
		b.wantSent(opWatch, 1, "one watch for a key")

		b.until(10 * time.Second)
		for _, p := range gaps(b.store.sent(opAcquire)[1:]) {
			wantBetween(t, "a pause of", p, pollAgain*4/5, pollAgain, "a waiter looks about once a second, with jitter")
		}

		before := len(b.store.sent(opAcquire))
		b.store.signal("k")
		synctest.Wait()
		if sent := b.store.sent(opAcquire); len(sent) != before+1 || sent[before].at != b.at() {
			t.Errorf("%d looks at a signal, want 1 at once", len(sent)-before)
		}
		if waiting.over() {
			t.Fatal("a signal is a hint, the store decides: want the waiter to wait on")
		}

		at := b.at()
		b.store.free("k")
		waiting.wantEnd(t, at, at, "the signal of a release ends the wait")
		b.wantSent(opWatch, 1, "the watch was good all the time")
	})
}

// A waiter that has a Watch polls all the same while the present holder sends no
// signals.
func TestSilentHolderUnderAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.next(opAcquire, busy(unknownLeft, false), busy(unknownLeft, false))
		b.store.from(opAcquire, busy(unknownLeft, true))
		_, err := b.Lock(t.Context(), "k", WithWait(5*time.Second))
		wantErr(t, err, ErrNotAcquired, "the key stayed taken")
		b.wantSent(opWatch, 1, "the first holder would have signalled")
		for _, p := range gaps(b.store.sent(opAcquire))[2:] {
			wantBetween(t, "a pause of", p, pollMin, pollMax, "nothing would be signalled")
		}
	})
}

// Whatever signal is lost, a free lock is taken within about a second.
func TestLostSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.mute = true
		b.store.seize("k", "stranger", time.Hour)
		waiting := b.locking(t.Context(), "k")
		b.until(10 * time.Second)
		b.store.free("k")
		waiting.wantEnd(t, 10*time.Second, 11*time.Second, "a waiter looks about once a second")
	})
}

// A waiter that cannot watch polls, and asks for a watch again about once a
// second.
func TestRefusedWatch(t *testing.T) {
	for name, s := range map[string]step{"refused": fail(errNoPerm), "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, notifying)
				b.store.next(opWatch, s, s, s)
				b.store.seize("k", "stranger", time.Hour)
				waiting := b.locking(t.Context(), "k")
				b.until(20 * time.Second)
				watches := b.wantSent(opWatch, 4, "three that failed, and one that stands")
				for i, w := range watches {
					took := w.end - w.at
					wantBetween(t, "Watch took", took, 0, watchTimeout, "the waiter does not look meanwhile")
					if i > 0 {
						wantBetween(t, "asked again after", w.at-watches[i-1].end, pollAgain, pollAgain+2*pollMax, "not all the time, but soon")
					}
				}
				last := watches[3].end
				for _, c := range b.store.sent(opAcquire) {
					if c.at != last && c.Wait != (c.at > last) {
						t.Errorf("Wait is %v at %v, want %v: the watch stands since %v", c.Wait, c.at, !c.Wait, last)
					}
				}
				for _, p := range gaps(b.store.sent(opAcquire)) {
					wantBetween(t, "a pause of", p, 0, pollAgain+pollMax, "a free lock is taken within about a second")
				}
				b.store.free("k")
				waiting.wantLease(t)
			})
		})
	}
}

// A Watch that has ended is closed and replaced, whether it ends during the wait
// or before it.
func TestEndedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		waiting := b.locking(t.Context(), "k")
		b.until(5 * time.Second)
		before := len(b.store.sent(opAcquire))
		b.store.endWatches()
		synctest.Wait()
		b.wantSent(opWatch, 2, "a closed C says that the watch signals no more")
		if n := b.store.watching(); n != 1 {
			t.Errorf("%d watches are open, want 1: the old one is closed", n)
		}
		if n := len(b.store.sent(opAcquire)) - before; n != 2 {
			t.Errorf("%d looks, want 2: without a watch, and once more with it", n)
		}
		b.store.free("k")
		waiting.wantEnd(t, 5*time.Second, 5*time.Second, "the new watch signals")

		// Now it lingers, and ends before anybody waits on it.
		b.store.endWatches()
		next := b.locking(t.Context(), "k")
		b.unlock(waiting.lease)
		b.unlock(next.wantLease(t))
		b.store.seize("k", "stranger", time.Hour)
		next = b.locking(t.Context(), "k")
		b.wantSent(opWatch, 3, "the lingering watch had ended")
		b.store.free("k")
		next.wantEnd(t, 5*time.Second, 5*time.Second, "the new watch signals")
		b.unlock(next.lease)
		b.until(10 * time.Second)
		b.wantIdle("all leases are unlocked")
	})
}

// A Watch outlives a queue that was served for up to a second, for who contended
// once will do so again; a waiter that gives up ends it at once.
func TestLingeringWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		for range 3 {
			b.store.seize("k", "stranger", time.Hour)
			waiting := b.locking(t.Context(), "k")
			b.store.free("k")
			b.unlock(waiting.wantLease(t))
			b.until(b.at() + watchLinger/4)
		}
		b.wantSent(opWatch, 1, "it lingered")
		if n := b.store.watching(); n != 1 {
			t.Errorf("%d watches are open, want 1: it lingers", n)
		}
		b.until(b.at() + watchLinger)
		b.wantIdle("more than a second has gone by")

		b.store.seize("k", "stranger", time.Hour)
		_, err := b.Lock(t.Context(), "k", WithWait(500*time.Millisecond))
		wantErr(t, err, ErrNotAcquired, "the key stayed taken")
		b.wantIdle("the last waiter gave up")
	})
}

// However many calls of a process wait for a key that stays held, they ask about once a
// second: the timer for a late answer does nothing once the answer has come.
func TestManyWaitersLookOnceASecond(t *testing.T) {
	for _, n := range []int{1, 2, 50} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, notifying)
				b.store.seize("k", "stranger", time.Hour)
				for range n {
					b.locking(t.Context(), "k", WithWait(30*time.Second))
				}
				b.until(time.Second)
				before, seconds := len(b.store.sent(opAcquire)), 20
				b.until(time.Duration(seconds+1) * time.Second)
				if sent := len(b.store.sent(opAcquire)) - before; sent < seconds || sent > seconds*5/4 {
					t.Errorf("%d commands in %d s, want 1 to 1.25 a second", sent, seconds)
				}
			})
		})
	}
}

// A call that joins while a watch lingers is not woken by the end of the lingering.
func TestTheEndOfALingeringWatchWakesNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", 100*time.Millisecond)
		b.unlock(b.lock(t.Context(), "k")) // leaves a watch behind
		b.store.seize("k", "stranger", time.Hour)
		from := b.at()
		b.locking(t.Context(), "k", WithWait(10*time.Second))
		before := len(b.store.sent(opAcquire))
		b.until(from + 5*time.Second)
		for _, p := range gaps(b.store.sent(opAcquire)[before-1:]) {
			wantBetween(t, "a pause of", p, pollAgain*4/5, pollAgain, "about once a second")
		}
	})
}
