package locker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

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
