package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuckLog blocks whoever tells it of a loss first, as a slow disk does.
type stuckLog struct {
	slog.Handler
	first   *atomic.Bool
	stuck   chan struct{}
	release chan struct{}
}

func (h stuckLog) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "lock lost" && h.first.CompareAndSwap(false, true) {
		close(h.stuck)
		<-h.release
	}
	return nil
}

// Whoever asks a lease whose time is over is told so, even if nobody else has
// been told yet: the timer's goroutine is stuck here.
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
			if isLost(h.l) {
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
				log := stuckLog{slog.DiscardHandler, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
				b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(log)))
				defer close(log.release)
				// They end together: one is lost by the timer, which gets
				// stuck, the others are still to be found.
				var all []held
				for i := range 5 {
					l := b.lock(ContextWithOwner(t.Context(), fmt.Sprint("owner ", i)), fmt.Sprint("k", i))
					ctx := l.Context(t.Context())
					all = append(all, held{b, l, ctx, context.WithValue(ctx, key{}, 1)})
				}
				<-log.stuck
				wantBetween(t, "the timer came at", b.at(), 988*time.Millisecond, 988*time.Millisecond, "that is the deadline")
				for i, h := range all {
					if err := ask(h); !errors.Is(err, ErrLost) {
						t.Errorf("%s of lease %d: %v, want %v: its time is over", question, i, err, ErrLost)
					}
				}
				b.wantSent(opRenew, 0, "what is lost is not renewed")
			})
		})
	}
}

// A lease whose time is over makes this Locker ask the store again, even if its
// loss has not been told yet.
func TestTryLockAsksAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stuckLog{slog.DiscardHandler, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(log)))
		defer close(log.release)
		for i := range 5 {
			b.lock(t.Context(), fmt.Sprint(i))
		}
		<-log.stuck
		for i := range 5 {
			_, err := b.TryLock(t.Context(), fmt.Sprint(i))
			wantErr(t, err, ErrNotAcquired, "in the store the TTL is not over")
		}
		b.wantSent(opAcquire, 10, "nobody here holds any of them")
	})
}

// slowContext is alive, and its Err returns when it may.
type slowContext struct {
	context.Context
	proceed chan struct{}
}

func (c slowContext) Err() error {
	<-c.proceed
	return c.Context.Err()
}

// An Unlock that began in time and overtakes the news of the loss ends as a loss
// or a release; nobody gets a nil lease meanwhile, and TryLock comes back.
func TestUnlockOvertakesTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stuckLog{slog.DiscardHandler, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal(), WithLogger(slog.New(log)))
		defer close(log.release)
		b.store.from(opRelease, delay(2*time.Second, obey))
		proceed := make(chan struct{})
		owner := func(i int) context.Context { return ContextWithOwner(t.Context(), fmt.Sprint("owner ", i)) }
		var all []*locking
		for i := range 5 {
			l := b.lock(owner(i), fmt.Sprint("k", i))
			all = append(all, b.unlocking(slowContext{t.Context(), proceed}, l))
		}
		<-log.stuck // one loss is told, the others are decided but not told
		close(proceed)
		synctest.Wait()
		for i := range all {
			key := fmt.Sprint("k", i)
			if l, err := b.TryLock(t.Context(), key); l != nil || err == nil {
				t.Fatalf("TryLock of %s: lease %v, error %v; want an error: it is not free yet", key, l, err)
			}
		}
		for i, unlocking := range all {
			key := fmt.Sprint("k", i)
			l, err := b.Lock(owner(i), key, WithWait(10*time.Second))
			if l == nil || err != nil {
				t.Fatalf("Lock of %s: lease %v, error %v; want a lease once it is free", key, l, err)
			}
			<-unlocking.done
			if unlocking.err != nil {
				wantErr(t, unlocking.err, ErrLost, "the Unlock ended as a loss")
			}
		}
	})
}
