package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

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
