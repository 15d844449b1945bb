package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
	"github.com/distlock/locker/strategy/memory"
)

func TestLock(t *testing.T) {
	store := memory.NewStore()
	l, err := store.New()
	require.NoError(t, err)
	defer l.Close()

	require.NoError(t, check.Lock(l, "k", locker.WithTTL(time.Second)))
	require.Empty(t, store.Keys(), "the lock was taken")
	require.ErrorIs(t, check.Lock(nil, "k"), locker.ErrInvalid)
	require.ErrorIs(t, check.Lock(l, ""), locker.ErrInvalid)
	require.ErrorIs(t, check.Lock(l, "k", nil), locker.ErrInvalid)
	require.ErrorIs(t, check.Lock(l, "k", locker.WithTTL(time.Hour*48)), locker.ErrInvalid)

	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	defer lease.Unlock(t.Context())
	require.NoError(t, check.Lock(l, "k"), "that the key is held is no fault of the arguments")
}
