package conformance

import (
	"context"
	"errors"
	"runtime"

	"github.com/distlock/locker"
)

var doCases = group("do", []Case{
	{Name: "DoReleases", Rules: []string{"R20"}, Locker: true, Test: testDoReleases,
		Contract: "Do releases the lock when its function returns, fails, panics, exits its goroutine, or outlives its context"},
	{Name: "DoReportsErrors", Rules: []string{"R2"}, Locker: true, Test: testDoReportsErrors,
		Contract: "Do returns its function's error, joined with ErrLost if the lease was lost by then, and Lock's error without running it"},
	{Name: "DoReenters", Rules: []string{"R5", "R6"}, Locker: true, Test: testDoReenters,
		Contract: "a Do within a Do of the same key re-enters, and ending it does not end the outer one"},
	{Name: "DoContextEnds", Rules: []string{"R10"}, Locker: true, Test: testDoContextEnds,
		Contract: "the context of Do's function lives while the lock is held, and is over when Do has returned"},
})

func testDoReleases(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	failure := errors.New("failure")
	ctx, cancel := context.WithCancel(t.Context())
	for _, way := range []struct {
		name string
		f    func(context.Context) error
		want error
	}{
		{"return", func(context.Context) error { return nil }, nil},
		{"error", func(context.Context) error { return failure }, failure},
		{"cancel", func(context.Context) error { cancel(); return nil }, nil},
	} {
		err := locker.Do(ctx, a, key, func(ctx context.Context) error {
			t.Taken(b, key)
			return way.f(ctx)
		})
		if !errors.Is(err, way.want) {
			t.Errorf("%s: Do returned %v", way.name, err)
		}
		t.Free(b, key)
	}

	func() {
		defer func() {
			if v := recover(); v != any(failure) {
				t.Errorf("the panic's value became %v", v)
			}
		}()
		_ = locker.Do(t.Context(), a, key, func(context.Context) error { panic(failure) })
	}()
	t.Free(b, key)

	exited := t.Go(func() {
		_ = locker.Do(t.Context(), a, key, func(context.Context) error { runtime.Goexit(); return nil })
	})
	t.Ends(exited, t.Timing().Patience, "the end of a goroutine that exits within Do")
	t.Free(b, key)
}

func testDoReportsErrors(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	failure := errors.New("failure")
	err := locker.Do(t.Context(), a, key, func(ctx context.Context) error {
		// Waiting for the lease to end is the subject.
		t.Ends(ctx.Done(), t.Timing().ShortTTL+t.Timing().Slack, "the end of the function's context with the lease")
		t.Is(context.Cause(ctx), locker.ErrLost)
		return failure
	}, locker.WithTTL(t.Timing().ShortTTL), locker.WithoutRenewal())
	t.Is(err, failure, locker.ErrLost)

	lease := t.Lock(b, key)
	err = locker.Do(t.Context(), a, key, func(context.Context) error {
		t.Errorf("Do ran its function without the lock")
		return nil
	}, locker.WithWait(t.Timing().RenewEvery))
	t.Is(err, locker.ErrNotAcquired)
	t.Unlock(lease)
	t.Is(locker.Do(t.Context(), a, key, nil), locker.ErrInvalid)
	t.Is(locker.Do(t.Context(), nil, key, func(context.Context) error { return nil }), locker.ErrInvalid)
}

func testDoReenters(t *T) {
	a, b, key := t.Locker(), t.Locker(), t.Key("k")
	err := locker.Do(t.Context(), a, key, func(outer context.Context) error {
		err := locker.Do(outer, a, key, func(inner context.Context) error {
			t.Taken(b, key)
			return inner.Err()
		}, locker.WithWait(t.Timing().Patience))
		t.NoError(outer.Err(), "the outer context after the inner Do")
		t.Taken(b, key)
		return err
	})
	t.NoError(err, "Do")
	t.Free(b, key)
}

func testDoContextEnds(t *T) {
	type ctxKey struct{}
	l, key := t.Locker(), t.Key("k")
	var inner context.Context
	err := locker.Do(context.WithValue(t.Context(), ctxKey{}, "value"), l, key, func(ctx context.Context) error {
		inner = ctx
		if ctx.Value(ctxKey{}) != "value" {
			t.Errorf("the function's context has not the values of Do's")
		}
		return ctx.Err()
	})
	t.NoError(err, "Do")
	t.Is(inner.Err(), context.Canceled)
	t.Isnt(context.Cause(inner), locker.ErrLost)
}
