package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Each Do has the rules of the function Do: its error says whether the function ran, and what it
// holds is given back whatever the function does.
func TestEveryDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		ctx := t.Context()
		rw, s := newRW(t, b), newSemaphore(t, b, "s", 1)
		for name, do := range map[string]func(fn func(context.Context) error, opts ...LockOption) error{
			"Do": func(fn func(context.Context) error, opts ...LockOption) error {
				return Do(ctx, b.Client, "k", fn, opts...)
			},
			"DoAll": func(fn func(context.Context) error, opts ...LockOption) error {
				return DoAll(ctx, b.Client, []string{"l", "k"}, fn, opts...)
			},
			"RWLock.Do":    func(fn func(context.Context) error, opts ...LockOption) error { return rw.Do(ctx, fn, opts...) },
			"RWLock.RDo":   func(fn func(context.Context) error, opts ...LockOption) error { return rw.RDo(ctx, fn, opts...) },
			"Semaphore.Do": func(fn func(context.Context) error, opts ...LockOption) error { return s.Do(ctx, fn, opts...) },
		} {
			mine := errors.New("mine")
			err := do(func(ctx context.Context) error {
				if ctx.Err() != nil {
					t.Errorf("%s: the context has ended: %v", name, ctx.Err())
				}
				return mine
			})
			if err != mine {
				t.Errorf("%s: %v, want the function's error", name, err)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s swallows a panic", name)
					}
				}()
				_ = do(func(context.Context) error { panic("mine") })
			}()
			for _, key := range []string{"k", "s"} {
				b.store.seize(key, "stranger", 1<<40)
			}
			err = do(func(context.Context) error { t.Errorf("%s runs", name); return nil }, WithWait(0))
			var doErr *DoError
			if !errors.As(err, &doErr) || doErr.Ran || doErr.Key == "" {
				t.Errorf("%s: %v, want a DoError of a function that did not run", name, err)
			}
			wantErr(t, err, ErrNotAcquired, name)
			b.store.free("k")
			b.store.free("s")
			err = do(func(context.Context) error { b.store.free("k"); b.store.free("s"); return nil })
			if !errors.As(err, &doErr) || !doErr.Ran {
				t.Errorf("%s: %v, want a DoError of a function that ran", name, err)
			}
			wantErr(t, err, ErrLost, name)
			wantErr(t, do(nil), ErrInvalid, name)
		}
	})
}
