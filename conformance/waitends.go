package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/internal/test/pace"
)

// The cases of group waiting about how a wait ends before it is granted the key.

func testWaitBoundIsNotAcquired(t *T) {
	wait := t.Timing().ShortTTL
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.Taken(b, key) // it is connected now
	for _, l := range []locker.Locker{a, b} {
		start := pace.Now()
		_, err := l.Lock(t.Context(), key, locker.WithWait(wait))
		took, real := start.Took(), time.Since(start.Time)
		t.Is(err, locker.ErrNotAcquired)
		t.Isnt(err, locker.ErrUnavailable, context.DeadlineExceeded, context.Canceled)
		if real < wait || took > wait+t.Timing().Slack {
			t.Errorf("WithWait(%v) took %v", wait, real)
		}
	}
	t.Unlock(lease)
}

func testDeadlineMatchesBoth(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.Taken(b, key) // it is connected now
	for _, l := range []locker.Locker{a, b} {
		start := pace.Now()
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		_, err := l.Lock(ctx, key, locker.WithWait(t.Timing().Patience))
		cancel()
		t.Is(err, locker.ErrNotAcquired, context.DeadlineExceeded)
		t.Isnt(err, locker.ErrUnavailable, context.Canceled)
		if took := start.Took(); took > t.Timing().ShortTTL+t.Timing().Prompt {
			t.Errorf("a deadline of %v took %v", t.Timing().ShortTTL, took)
		}
	}
	t.Unlock(lease)
}

func testCancelIsPrompt(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key)
	t.Taken(b, key) // it is connected now
	for _, l := range []locker.Locker{a, b} {
		var times []time.Duration
		for range 9 {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := t.WaitUnder(ctx, l, key)
			start := pace.Now()
			cancel(locker.ErrConflict)
			err := t.Refused(w, t.Timing().Prompt)
			t.Is(err, locker.ErrNotAcquired, context.Canceled, locker.ErrConflict)
			t.Isnt(err, locker.ErrUnavailable)
			times = append(times, w.At.Since(start))
		}
		t.Median("the time from cancellation to Lock's return", times, t.Timing().PromptMedian)
	}
	t.Unlock(lease)
	// Not at once: an attempt that was on its way is cleaned up first.
	t.FreeWithin(t.Timing().PollWithin, b, key)

	// A wait that ends while it subscribes: each key is waited for the first time.
	for i := range 3 {
		key := t.Key(fmt.Sprint("k", i))
		lease := t.Lock(a, key)
		const wait = 20 * time.Millisecond
		t.Prompt("a Lock whose context ends soon", func() {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := b.Lock(ctx, key)
			t.Is(err, context.DeadlineExceeded)
		})
		t.Unlock(lease)
	}
}

func testDeadContextGetsNothing(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		for _, lock := range []func(context.Context, string, ...locker.LockOption) (*locker.Lease, error){a.Lock, a.TryLock} {
			t.Prompt("a call under a dead context", func() {
				_, err := lock(ctx, key)
				t.Is(err, want)
			})
			t.Free(b, key)
		}
	}
}

func testWaitZeroIsOneAttempt(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(a, key, locker.WithWait(0))
	for _, l := range []locker.Locker{a, b} {
		t.Prompt("Lock with WithWait(0) on a held key", func() {
			_, err := l.Lock(t.Context(), key, locker.WithWait(0))
			t.Is(err, locker.ErrNotAcquired)
			t.Isnt(err, locker.ErrUnavailable, context.DeadlineExceeded)
		})
	}
	t.Unlock(lease)
}

func testUnboundedWaitUndoesTheDefault(t *T) {
	wait := t.Timing().RenewEvery
	a, b, key := t.Locker(), t.Locker(locker.WithWait(wait)), t.Key("k")
	lease := t.Lock(a, key)
	w := t.Wait(b, key, locker.WithUnboundedWait())
	// That it waits longer than the default is the subject.
	t.Sleep(3 * wait)
	t.Waits(w)
	t.Unlock(lease)
	t.Unlock(t.Granted(w, t.Timing().PollWithin))
}

func testBoundCountsInTheQueue(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	lease := t.Lock(other, key)
	t.Taken(l, key) // it is connected now
	first := t.Wait(l, key)
	bounded := t.Wait(l, key, locker.WithWait(t.Timing().RenewEvery))
	last := t.Wait(l, key)
	t.Is(t.Refused(bounded, t.Timing().RenewEvery+t.Timing().Prompt), locker.ErrNotAcquired)
	t.Unlock(lease)
	t.served([]*suite.Waiter{first, last})
}

func testCancelledWaiterPassesOn(t *T) {
	holder, key := t.Locker(), t.Key("k")
	ls := t.Lockers(2)
	woken := wakes{t: t, allowed: 4} // of 40
	for range 20 {
		lease := t.Lock(holder, key)
		doomed, near, far := t.Wait(ls[0], key), t.Wait(ls[0], key), t.Wait(ls[1], key)
		// All at once: the cancellation meets the wake-up anywhere on its way.
		cancelled := t.Go(func() {
			time.Sleep(time.Duration(t.IntN(1000)) * time.Microsecond) // a random moment is the subject
			doomed.Cancel()
		})
		freed := pace.Now()
		t.Unlock(lease)
		<-cancelled
		t.Ends(doomed.Done(), t.Timing().Prompt, "the end of a cancelled wait")
		if doomed.Err == nil {
			freed = pace.Now()
			t.Unlock(doomed.Lease)
		} else {
			t.Is(doomed.Err, context.Canceled)
		}
		rest := []*suite.Waiter{near, far}
		for len(rest) > 0 {
			late, stop := pace.Timeout(t.Timing().PollWithin)
			select {
			case <-rest[0].Done():
			case <-rest[len(rest)-1].Done():
				slices.Reverse(rest)
			case <-late:
				t.Fatalf("no waiter took the key within %v", t.Timing().PollWithin)
			}
			stop()
			next := t.Granted(rest[0], t.Timing().Slack)
			woken.took(rest[0].At.Since(freed))
			freed = pace.Now()
			t.Unlock(next)
			rest = rest[1:]
		}
	}
}

func testGivesUpRightAfterASuccess(t *T) {
	holder, quitter, next, key := t.Locker(), t.Locker(), t.Locker(), t.Key("k")
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond} {
		// One of a few is woken at once, however busy the machine is.
		woken := wakes{t: t, allowed: 2}
		for range 3 {
			t.Unlock(t.Lock(quitter, key))
			lease := t.Lock(holder, key)
			w := t.Wait(quitter, key)
			behind := t.Wait(next, key)
			time.Sleep(after) // that it is so soon is the subject
			w.Cancel()
			t.Is(t.Refused(w, t.Timing().Prompt), context.Canceled)
			freed := pace.Now()
			t.Unlock(lease)
			// Well before the end of any TTL, which a place in the queue might last.
			t.Unlock(t.Granted(behind, t.Timing().PollWithin))
			woken.took(behind.At.Since(freed))
			t.Free(holder, key)
		}
	}
}
