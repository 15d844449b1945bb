package conformance_test

import (
	"context"

	"github.com/distlock/locker"
)

// wrapped is a Locker with Lock and TryLock replaced.
type wrapped struct {
	locker.Locker
	lock, tryLock func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error)
	close         func(l locker.Locker) error
}

func (w wrapped) Lock(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	if w.lock != nil {
		return w.lock(w.Locker, ctx, key, opts...)
	}
	return w.Locker.Lock(ctx, key, opts...)
}

func (w wrapped) TryLock(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	if w.tryLock != nil {
		return w.tryLock(w.Locker, ctx, key, opts...)
	}
	return w.Locker.TryLock(ctx, key, opts...)
}

func (w wrapped) Close() error {
	if w.close != nil {
		return w.close(w.Locker)
	}
	return w.Locker.Close()
}

func wrapping(w wrapped) fake {
	v := fakeCounting
	v.wrap = func(l locker.Locker) locker.Locker {
		w := w
		w.Locker = l
		return w
	}
	return v
}

// changing passes every call on with another context.
func changing(f func(ctx context.Context) context.Context) fake {
	return wrapping(wrapped{
		lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.Lock(f(ctx), key, opts...)
		},
		tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			return l.TryLock(f(ctx), key, opts...)
		},
	})
}

// failing passes every error on as another one.
func failing(f func(err error) error) fake {
	return wrapping(wrapped{
		lock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			lease, err := l.Lock(ctx, key, opts...)
			return lease, f(err)
		},
		tryLock: func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			lease, err := l.TryLock(ctx, key, opts...)
			return lease, f(err)
		},
	})
}
