package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/retry"
)

// Cancelling returns at once, wherever the waiter is; what its attempt may get is
// given back, also if the command reaches the store after that.
func TestCancelDuringAnAttempt(t *testing.T) {
	const again = time.Second + retry.RepeatAfter
	for name, c := range map[string]struct {
		s       step
		cleanUp []time.Duration
	}{
		"no answer":                  {hang, []time.Duration{time.Second, again}},
		"no answer, granted":         {loseReply, []time.Duration{time.Second}},
		"granted after the clean-up": {applyLate(1500 * time.Millisecond), []time.Duration{time.Second, again}},
		"certainly not applied": {func(c *command) error {
			<-c.ctx.Done()
			return &driver.StoreError{Err: c.ctx.Err(), NotApplied: true}
		}, nil},
	} {
		for _, op := range []string{"Lock", "TryLock"} {
			t.Run(name+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					b.store.next(opAcquire, c.s)
					ctx, cancel := context.WithCancel(t.Context())
					lock := b.Lock
					if op == "TryLock" {
						lock = b.TryLock
					}
					waiting := b.begin(func() (*Lease, error) { return lock(ctx, "k") })
					b.until(time.Second)
					cancel()
					waiting.wantEnd(t, time.Second, time.Second, "the caller does not wait for the attempt")
					wantErr(t, waiting.err, context.Canceled, "the context ended it")
					if b.keys() != 0 {
						t.Error("the Locker knows the key, want it forgotten: no caller holds it or waits")
					}

					b.until(20 * time.Second)
					sent := b.wantSent(opAcquire, 1, "no caller wants the key any more")[0]
					for i, r := range b.wantSent(opRelease, len(c.cleanUp), "what may be ours is given back") {
						wantBetween(t, "the clean-up was sent at", r.at, c.cleanUp[i], c.cleanUp[i], "at once, and once more if it found nothing")
						if r.ID != sent.ID {
							t.Errorf("%s was released, want %s", r.ID, sent.ID)
						}
					}
					if held := b.store.held("k"); held != "" {
						t.Errorf("%s holds the key, want it free", held)
					}
					b.wantIdle("the attempt has been cleaned up")
				})
			})
		}
	}
}

// A late clean-up cannot touch a later grant: the next attempt has another claim.
func TestLateCleanUpSparesTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		ann := ContextWithOwner(t.Context(), "ann") // the same owner, even
		b.store.next(opAcquire, hang)
		ctx, cancel := context.WithTimeout(ann, time.Second)
		defer cancel()
		_, err := b.Lock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "no answer came")
		l := b.lock(ann, "k")
		b.until(10 * time.Second)
		sent := b.store.sent(opAcquire)
		for _, r := range b.wantSent(opRelease, 2, "the first attempt is cleaned up") {
			if r.ID != sent[0].ID || r.ID == sent[1].ID {
				t.Errorf("the clean-up names %s, want the first claim %s and not the second %s", r.ID, sent[0].ID, sent[1].ID)
			}
		}
		if held := b.store.held("k"); held != "ann" {
			t.Errorf("%q holds the key, want ann", held)
		}
		b.unlock(l)
	})
}

// A waiter that gives up while it sleeps is gone at once, with its watch.
func TestCancelWhileWaiting(t *testing.T) {
	for name, k := range map[string]kind{"polling": plain, "watching": notifying} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, k)
				b.store.seize("k", "stranger", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				waiting := b.locking(ctx, "k")
				b.until(5500 * time.Millisecond)
				cancel()
				waiting.wantEnd(t, b.at(), b.at(), "cancelling returns at once")
				wantErr(t, waiting.err, ErrNotAcquired, "the key was taken")
				b.wantIdle("nobody waits")
				sent := len(b.store.sent(opAcquire))
				b.until(time.Minute)
				b.wantSent(opAcquire, sent, "nobody waits")
				b.wantSent(opRelease, 0, "all attempts were refused")
			})
		})
	}
}

// A waiter that gives up while it subscribes leaves no watch behind.
func TestCancelWhileSubscribing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, notifying)
		b.store.seize("k", "stranger", time.Hour)
		b.store.next(opWatch, hang)
		_, err := b.Lock(t.Context(), "k", WithWait(300*time.Millisecond))
		wantBetween(t, "Lock returned at", b.at(), 300*time.Millisecond, 300*time.Millisecond, "the wait was over")
		wantErr(t, err, ErrNotAcquired, "the key was taken")
		b.wantIdle("nobody waits")
	})
}

// A grant that comes as its waiter gives up goes to the next one, not to waste
// for a TTL.
func TestGrantToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, replyAfter(100*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		gone, next := b.locking(ctx, "k"), b.locking(t.Context(), "k")
		gone.wantEnd(t, 50*time.Millisecond, 50*time.Millisecond, "its context ended")
		next.wantEnd(t, 50*time.Millisecond, 50*time.Millisecond+pollMax, "the grant is given back at once")
		next.wantLease(t)
	})
}

// A clean-up is tried again while the store is in trouble, for as long as a
// release is.
func TestCleanUpInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, failAfter(errReset))
		b.store.from(opRelease, fail(errRefused))
		_, err := b.TryLock(t.Context(), "k")
		wantErr(t, err, ErrUnavailable, "the attempt failed")
		b.until(3 * time.Second)
		b.store.from(opRelease, nil)
		b.until(4 * time.Second)
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody: the clean-up is tried again", held)
		}
		b.wantIdle("the attempt has been cleaned up")
	})
}

// How a wait is ended, and what it matches.
var waitEnds = map[string]struct {
	begin func(context.Context, time.Duration) (context.Context, context.CancelFunc, []LockOption)
	match error // besides ErrNotAcquired or ErrUnavailable; nil: no context's error
}{
	"WithWait": {func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc, []LockOption) {
		return ctx, func() {}, []LockOption{WithWait(d)}
	}, nil},
	"deadline": {func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc, []LockOption) {
		ctx, cancel := context.WithTimeout(ctx, d)
		return ctx, cancel, nil
	}, context.DeadlineExceeded},
	"cause": {func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc, []LockOption) {
		ctx, cancel := context.WithTimeoutCause(ctx, d, errShutdown)
		return ctx, cancel, nil
	}, errShutdown},
}

var errShutdown = errors.New("shutting down")

// A wait that ends in contention says ErrNotAcquired, one that ends in an outage
// ErrUnavailable and not ErrNotAcquired; if a context ended it, its error too.
func TestEndOfAWait(t *testing.T) {
	taken := busy(unknownLeft, false)
	for name, c := range map[string]struct {
		first step // the first attempt
		then  step // the others
		wait  time.Duration
		want  error
	}{
		"contention":                     {taken, taken, 2 * time.Second, ErrNotAcquired},
		"answered slowly":                {delay(400*time.Millisecond, taken), delay(400*time.Millisecond, taken), 2 * time.Second, ErrNotAcquired},
		"over as soon as it began":       {hang, hang, answerSoon - time.Millisecond, ErrNotAcquired},
		"refused":                        {fail(errRefused), fail(errRefused), 2 * time.Second, ErrUnavailable},
		"refused since a moment ago":     {taken, fail(errRefused), 500 * time.Millisecond, ErrUnavailable},
		"unanswered":                     {hang, hang, 2 * time.Second, ErrUnavailable},
		"unanswered, short wait":         {hang, hang, 2 * answerSoon, ErrUnavailable},
		"unanswered after an answer":     {taken, hang, 2 * time.Second, ErrUnavailable},
		"slow only for the last attempt": {taken, hang, answerLate / 2, ErrNotAcquired},
	} {
		for ending, e := range waitEnds {
			t.Run(name+", "+ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					b.store.next(opAcquire, c.first)
					b.store.from(opAcquire, c.then)
					ctx, cancel, opts := e.begin(t.Context(), c.wait)
					defer cancel()
					// The second in the queue learns it from the first.
					head, second := b.locking(ctx, "k", opts...), b.locking(ctx, "k", opts...)
					for place, w := range map[string]*locking{"head": head, "second": second} {
						w.wantEnd(t, c.wait, c.wait, place+": the wait was over")
						not := ErrUnavailable
						if c.want == ErrUnavailable {
							not = ErrNotAcquired
						}
						wantErr(t, w.err, c.want, place, not, ErrClosed, ErrLost)
						if e.match != nil {
							wantErr(t, w.err, e.match, place+": the context ended the wait")
						} else {
							wantErr(t, w.err, c.want, place+": no context ended", context.DeadlineExceeded, context.Canceled)
						}
					}
					b.until(20 * time.Second)
					b.wantIdle("nobody waits")
				})
			})
		}
	}
}

// A context that is done from the start asks nobody.
func TestDeadContext(t *testing.T) {
	for op, lock := range map[string]func(Locker, context.Context, string, ...LockOption) (*Lease, error){
		"Lock": Locker.Lock, "TryLock": Locker.TryLock,
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, notifying)
				_, err := lock(b, ended(t), "k")
				wantErr(t, err, ErrNotAcquired, "the caller does not want it any more", ErrUnavailable)
				wantErr(t, err, context.Canceled, "the context ended it")
				b.wantSent(opAcquire, 0, "nobody wants the answer")
				b.wantIdle("nobody waits")
			})
		})
	}
}

// Cancelling TryLock's context ends it at once, with an outcome nobody knows.
func TestCancelledTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.next(opAcquire, loseReply)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.TryLock(ctx, "k")
		wantErr(t, err, ErrUnavailable, "no answer came", ErrNotAcquired)
		wantErr(t, err, context.DeadlineExceeded, "the context ended it")
		wantBetween(t, "TryLock returned at", b.at(), time.Second, time.Second, "the context ended then")
	})
}

// Every call is bounded as under any other context where its own was detached from its end and
// has kept the Deadline.
func TestCallsUnderADetachedContext(t *testing.T) {
	for name, c := range detachedCalls {
		for deadline, d := range map[string]time.Duration{"passed": time.Millisecond, "ahead": time.Second} {
			t.Run(name+", its Deadline is "+deadline, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := plain
					if name == "Semaphore" {
						k = permitting
					}
					b := newBench(t, k)
					held := b.lock(t.Context(), "mine")
					b.store.seize("k", "stranger", time.Hour)
					if c.hangs != "" {
						b.store.from(c.hangs, hang)
						defer b.store.from(c.hangs, obey)
					}
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					time.Sleep(10 * time.Millisecond) // on the bubble's clock: the context is older than the call
					start := b.at()
					calling := b.begin(func() (*Lease, error) { return nil, c.call(b, endless{ctx}, held) })
					b.until(start + 20*time.Second)
					if !calling.over() {
						t.Fatal("it has not returned after 20s")
					}
					wantBetween(t, "it took", calling.end-start, c.takes-300*time.Millisecond, c.takes+300*time.Millisecond, "that is its bound")
					wantErr(t, calling.err, c.want, "nothing ended but the wait", context.DeadlineExceeded)
				})
			})
		}
	}
}

var detachedCalls = map[string]struct {
	call  func(b *bench, ctx context.Context, held *Lease) error
	hangs op // the store does not answer these
	takes time.Duration
	want  error
}{
	"Lock": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(b.Lock(ctx, "k", WithWait(3*time.Second)))
	}, "", 3 * time.Second, ErrNotAcquired},
	"LockAll": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(LockAll(ctx, b.Client, []string{"a", "k", "z"}, WithWait(3*time.Second)))
	}, "", 3 * time.Second, ErrNotAcquired},
	"LockAsync": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(LockAsync(ctx, b.Client, "k", WithWait(3*time.Second)).Lease())
	}, "", 3 * time.Second, ErrNotAcquired},
	"RWLock": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(newRW(b.t, b).RLock(ctx, WithWait(3*time.Second)))
	}, "", 3 * time.Second, ErrNotAcquired},
	"Semaphore": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(newSemaphore(b.t, b, "k", 1).Acquire(ctx, WithWait(3*time.Second)))
	}, "", 3 * time.Second, ErrNotAcquired},
	"TryLock": {func(b *bench, ctx context.Context, _ *Lease) error {
		return second(b.TryLock(ctx, "free"))
	}, opAcquire, commandTimeout, ErrUnavailable},
	"Renew": {func(_ *bench, ctx context.Context, held *Lease) error {
		return held.Renew(ctx)
	}, opRenew, commandTimeout, ErrUnavailable},
	"Unlock": {func(_ *bench, ctx context.Context, held *Lease) error {
		return held.Unlock(ctx)
	}, opRelease, releaseBudget, ErrUnavailable},
}
