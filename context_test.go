package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// contexts is how many contexts l has to end.
func contexts(l *Lease) int {
	l.claim.s.mu.Lock()
	defer l.claim.s.mu.Unlock()
	return len(l.ctxs)
}

// A lease forgets the contexts whose parents have ended: a long one may see many
// requests.
func TestContextsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		for range 100 {
			parent, cancel := context.WithCancel(t.Context())
			ctx := l.Context(parent)
			child, stop := context.WithTimeout(ctx, time.Hour)
			defer stop()
			cancel()
			if ctx.Err() != context.Canceled || child.Err() != context.Canceled {
				t.Fatalf("Err is %v, of a child %v, want Canceled: the parent ended", ctx.Err(), child.Err())
			}
			if !errors.Is(l.Context(parent).Err(), context.Canceled) {
				t.Fatal("a context of an ended parent is alive, want it ended")
			}
		}
		synctest.Wait()
		if n := contexts(l); n != 0 {
			t.Errorf("%d contexts are kept, want none: their parents have ended", n)
		}
		ctx := l.Context(context.Background())
		if n := contexts(l); n != 1 {
			t.Errorf("%d contexts are kept, want 1", n)
		}
		b.unlock(l)
		if n := contexts(l); n != 0 || ctx.Err() != context.Canceled || context.Cause(ctx) != context.Canceled {
			t.Errorf("%d contexts are kept, Err is %v, Cause %v; want none, Canceled, Canceled after Unlock", n, ctx.Err(), context.Cause(ctx))
		}
		if err := l.Context(t.Context()).Err(); err != context.Canceled {
			t.Errorf("Err of a new context is %v, want Canceled: the lease was unlocked", err)
		}
	})
}

// A context carries its lease and those of its ancestors, for their keys only and
// for one Locker; an explicit owner hides those that are not its own.
func TestCarriedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stranger := newBench(t, plain), newBench(t, plain)
		outer := b.lock(t.Context(), "a")
		inner := b.lock(outer.Context(t.Context()), "b")
		ctx := inner.Context(outer.Context(t.Context()))
		reenters := func(b *bench, ctx context.Context, key string, want bool, why string) {
			t.Helper()
			l, err := b.TryLock(ctx, key)
			switch {
			case want && (err != nil || l.Holds() < 2):
				t.Errorf("TryLock(%q): %v, want re-entry: %s", key, err, why)
			case !want && err == nil && l.Holds() > 1:
				t.Errorf("TryLock(%q) re-entered, want not: %s", key, why)
			}
			if err == nil {
				b.unlock(l)
			}
		}
		reenters(b, ctx, "a", true, "an ancestor's key")
		reenters(b, ctx, "b", true, "its own key")
		reenters(b, ctx, "c", false, "nobody's key")
		reenters(b, t.Context(), "a", false, "no lease is carried")
		reenters(stranger, ctx, "a", false, "another Locker")
		reenters(b, ContextWithOwner(ctx, "ann"), "a", false, "ann does not hold it")
		reenters(b, ContextWithOwner(ctx, inner.Owner()), "b", true, "its owner by name")
		reenters(b, ContextWithOwner(ContextWithOwner(ctx, inner.Owner()), "ann"), "b", false, "the innermost name counts")

		again := b.lock(ctx, "b")
		both := again.Context(ctx)
		b.unlock(again)
		reenters(b, context.WithoutCancel(both), "b", true, "an unlocked lease is ignored, the one around it is carried")
		b.unlock(inner)
		reenters(b, context.WithoutCancel(both), "b", false, "both are unlocked")
		b.unlock(outer)
		b.wantIdle("all leases are unlocked")
	})
}

// Do unlocks whatever fn does, ends fn's context with the lease, and reports both
// errors.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second), WithoutRenewal())
		broken := errors.New("fn is broken")
		if err := Do(t.Context(), b, "k", func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do: %v, want nil", err)
		}
		wantErr(t, Do(t.Context(), b, "k", func(context.Context) error { return broken }), broken, "fn's error")
		func() {
			defer func() {
				if p := recover(); p != "fn panics" {
					t.Errorf("recovered %v, want fn's panic", p)
				}
			}()
			_ = Do(t.Context(), b, "k", func(context.Context) error { panic("fn panics") })
		}()
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody after a panic", held)
		}

		err := Do(t.Context(), b, "k", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(broken, context.Cause(ctx))
		})
		wantErr(t, err, broken, "fn's error")
		wantErr(t, err, ErrLost, "the cause, and Unlock's error")
		wantBetween(t, "Do returned at", b.at(), 988*time.Millisecond, 988*time.Millisecond, "fn's context ends with the lease")

		ctx, cancel := context.WithCancel(t.Context())
		err = Do(ctx, b, "k", func(ctx context.Context) error { cancel(); return ctx.Err() })
		wantErr(t, err, context.Canceled, "fn's error", ErrUnavailable)
		if held := b.store.held("k"); held != "" {
			t.Errorf("%s holds the key, want nobody: a dead context does not keep it locked", held)
		}
		wantErr(t, Do(ctx, b, "k", func(context.Context) error { t.Error("fn runs without the lock"); return nil }), ErrNotAcquired, "Lock failed")
		fn := func(context.Context) error { t.Error("fn runs, want a refusal"); return nil }
		var none context.Context
		for name, err := range map[string]error{
			"context":  Do(none, b, "k", fn),
			"Locker":   Do(t.Context(), nil, "k", fn),
			"function": Do(t.Context(), b, "k", nil),
		} {
			wantErr(t, err, ErrInvalid, "Do without a "+name)
		}
	})
}

type valueKey struct{}

// Unlock under the lease's own context, or under one that derives from it, frees the
// key: the end of that context by this Unlock is no end of the wait.
func TestUnlockUnderTheLeasesOwnContext(t *testing.T) {
	for name, derive := range map[string]func(*Lease, context.Context) (context.Context, context.CancelFunc){
		"its own": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return l.Context(ctx), func() {}
		},
		"a value": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(l.Context(ctx), valueKey{}, 1), func() {}
		},
		"a cancellable child": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithCancel(l.Context(ctx))
		},
		"a child with a deadline": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(l.Context(ctx), time.Minute)
		},
		"its own, twice": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return l.Context(l.Context(ctx)), func() {}
		},
		"a named owner's": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return ContextWithOwner(l.Context(ctx), "ann"), func() {}
		},
	} {
		for what, parent := range map[string]func(*testing.T) context.Context{
			"background":  func(*testing.T) context.Context { return context.Background() },
			"cancellable": func(t *testing.T) context.Context { t.Helper(); return t.Context() },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, plain)
					b.store.from(opRelease, delay(time.Second, obey))
					l := b.lock(t.Context(), "k")
					ctx, cancel := derive(l, parent(t))
					defer cancel()
					if err := l.Unlock(ctx); err != nil {
						t.Errorf("Unlock: %v, want nil", err)
					}
					if held := b.store.held("k"); held != "" || b.at() != time.Second {
						t.Errorf("held by %q at %v, want it free after 1s", held, b.at())
					}
				})
			})
		}
	}
}

// The end of the parent of the lease's context ends the wait of an Unlock under it, and
// so does a deadline of its own.
func TestUnlockUnderTheLeasesOwnContextEnds(t *testing.T) {
	for name, derive := range map[string]func(*Lease, context.Context) (context.Context, context.CancelFunc){
		"by the parent": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return context.WithValue(l.Context(ctx), valueKey{}, 1), cancel
		},
		"by a deadline": func(l *Lease, ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(l.Context(ctx), time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				b.store.from(opRelease, delay(1500*time.Millisecond, obey))
				l := b.lock(t.Context(), "k")
				ctx, cancel := derive(l, t.Context())
				defer cancel()
				wantErr(t, l.Unlock(ctx), context.DeadlineExceeded, "its context ended")
				wantBetween(t, "Unlock returned at", b.at(), time.Second, time.Second, "its context ended")
				b.until(10 * time.Second)
				if held := b.store.held("k"); held != "" {
					t.Errorf("%s holds the key, want it free: the release goes on", held)
				}
			})
		})
	}
}

// LeaseFromContext gives the innermost lease of a context, and none of another.
func TestLeaseFromContext(t *testing.T) {
	b := newBench(t, plain)
	outer := b.lock(t.Context(), "outer")
	inner := b.lock(outer.Context(t.Context()), "inner")
	for _, c := range []struct {
		ctx  context.Context
		want *Lease
	}{
		{t.Context(), nil},
		{nil, nil},
		{outer.Context(t.Context()), outer},
		{inner.Context(outer.Context(t.Context())), inner},
		{context.WithValue(ContextWithOwner(inner.Context(t.Context()), "ann"), valueKey{}, 1), inner},
		{context.WithoutCancel(outer.Context(t.Context())), outer},
	} {
		if l, ok := LeaseFromContext(c.ctx); l != c.want || ok != (c.want != nil) {
			t.Errorf("lease %p, %v; want %p", l, ok, c.want)
		}
	}
	err := Do(t.Context(), b, "done", func(ctx context.Context) error {
		if l, ok := LeaseFromContext(ctx); !ok || l.Key() != "done" || l.Token() == 0 {
			t.Errorf("the function under Do reaches %v, %v; want its lease and its token", l, ok)
		}
		return nil
	})
	if err != nil {
		t.Errorf("Do: %v, want nil", err)
	}
	b.unlock(outer)
	if l, ok := LeaseFromContext(outer.Context(t.Context())); l != outer || !ok {
		t.Error("a lease that was unlocked is not found, want it found: it tells so itself")
	}
}

// A lease's context under a parent of a foreign type costs one goroutine, which package
// context needs to hear of the parent's end, and that one ends with the lease.
func TestForeignParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		l := b.lock(t.Context(), "k")
		parent := foreign{t.Context(), make(chan struct{})}
		ctx := l.Context(parent)
		b.unlock(l)
		<-ctx.Done()
		ctx = b.lock(t.Context(), "k").Context(parent)
		close(parent.done)
		<-ctx.Done()
	})
}

type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

func (f foreign) Err() error {
	select {
	case <-f.done:
		return context.Canceled
	default:
		return nil
	}
}
