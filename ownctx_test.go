package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
