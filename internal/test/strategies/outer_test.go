package strategies

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// The loss of an outer lease, under whose context a command is sent, is not the store's word on an inner lock: the server
// stands still until the outer lease is lost.
func TestInnerLockWhenTheOuterIsLost(t *testing.T) {
	t.Parallel()
	for name, newLocker := range onOneRedis {
		for what, call := range map[string]func(t *testing.T, ctx context.Context, l locker.Locker, inner *locker.Lease) (kept bool){
			"Lock": func(t *testing.T, ctx context.Context, l locker.Locker, _ *locker.Lease) bool {
				_, err := l.Lock(ctx, "b")
				require.ErrorIs(t, err, locker.ErrLost, "its context has ended so")
				return false
			},
			"Unlock": func(t *testing.T, ctx context.Context, _ locker.Locker, inner *locker.Lease) bool {
				err := inner.Unlock(ctx)
				require.ErrorIs(t, err, locker.ErrUnavailable)
				require.NotErrorIs(t, err, locker.ErrLost)
				return false
			},
			"Renew": func(t *testing.T, ctx context.Context, _ locker.Locker, inner *locker.Lease) bool {
				err := inner.Renew(ctx)
				require.ErrorIs(t, err, locker.ErrUnavailable)
				require.NotErrorIs(t, err, locker.ErrLost)
				return true
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				rdb := srv.Client(t)
				l, err := newLocker(rdb)
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close()) }()
				var inner *locker.Lease
				if what != "Lock" {
					inner, err = l.Lock(t.Context(), "b")
					require.NoError(t, err)
				}
				kept := false
				_ = locker.Do(t.Context(), l, "a", func(ctx context.Context) error {
					srv.Pause()
					defer srv.Resume()
					kept = call(t, ctx, l, inner)
					require.Error(t, ctx.Err(), "the outer lease is lost")
					return nil
				}, locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
				if kept {
					require.NoError(t, inner.Err(), "the store has not denied it")
					require.NoError(t, inner.Unlock(t.Context()))
				}
				other, err := newLocker(rdb)
				require.NoError(t, err)
				defer func() { require.NoError(t, other.Close()) }()
				next, err := other.Lock(t.Context(), "b", locker.WithWait(locker.DefaultTTL/2))
				require.NoError(t, err, "nobody holds it")
				require.NoError(t, next.Unlock(t.Context()))
			})
		}
	}
}
