package conformance

import (
	"context"
	"time"

	"github.com/distlock/locker"
)

func testContextEndsByLoss(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	ctx := lease.Context(t.Context())
	second := lease.Context(ctx)
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	value := context.WithValue(ctx, struct{ t *T }{t}, 0)
	for _, c := range []context.Context{ctx, second, value} {
		t.NoError(c.Err(), "a context of a lease that is held")
		t.NoError(context.Cause(c), "the cause of a context of a lease that is held")
	}
	for _, c := range []context.Context{ctx, second, value, derived} {
		t.Ends(c.Done(), t.Timing().ShortTTL+t.Timing().Slack, "a lease's context ends on loss")
		t.Is(context.Cause(c), locker.ErrLost)
	}
	for _, c := range []context.Context{ctx, second, value} {
		t.Is(c.Err(), locker.ErrLost)
	}
	_ = lease.Unlock(t.Context())
	t.Is(ctx.Err(), locker.ErrLost)
	t.Is(context.Cause(ctx), locker.ErrLost)
}

func testContextEndsByUnlock(t *T) {
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	ctx := lease.Context(t.Context())
	t.NoError(ctx.Err(), "the lease's context")
	t.Unlock(lease)
	for _, c := range []context.Context{ctx, lease.Context(t.Context())} {
		t.Ends(c.Done(), t.Timing().Slack, "a lease's context ends by Unlock")
		for _, err := range []error{c.Err(), context.Cause(c)} {
			t.Is(err, context.Canceled)
			t.Isnt(err, locker.ErrLost, context.DeadlineExceeded)
		}
	}
}

func testContextFollowsParent(t *T) {
	type ctxKey struct{}
	l, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	at := time.Now().Add(time.Hour)
	parent, stop := context.WithDeadline(context.WithValue(t.Context(), ctxKey{}, "value"), at)
	defer stop()
	parent, cancel := context.WithCancelCause(parent)
	ctx := lease.Context(parent)
	if d, ok := ctx.Deadline(); !ok || d.After(at) {
		t.Errorf("the deadline is %v (%t), the parent's %v", d, ok, at)
	}
	if ctx.Value(ctxKey{}) != "value" {
		t.Errorf("the parent's values are not there")
	}
	cancel(locker.ErrConflict)
	t.Ends(ctx.Done(), t.Timing().Slack, "the lease's context ends with its parent")
	t.Is(ctx.Err(), context.Canceled)
	t.Is(context.Cause(ctx), locker.ErrConflict)
	t.Isnt(ctx.Err(), locker.ErrLost)
	t.Open(lease.Lost(), "Lost")
	t.Unlock(lease)
}
