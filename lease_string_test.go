package locker_test

import (
	"fmt"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
)

func TestLeaseString(t *testing.T) {
	store := memory.NewStore()
	l, err := store.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lock := func() (*locker.Lease, string) {
		lease, err := l.Lock(t.Context(), "orders/42")
		require.NoError(t, err)
		return lease, fmt.Sprintf(`lease of "orders/42", token %d, `, lease.Token())
	}

	lease, named := lock()
	require.Equal(t, named+"held", fmt.Sprint(lease))
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, named+"unlocked", fmt.Sprint(lease))

	lease, named = lock()
	store.Break("orders/42")
	require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrLost)
	require.Equal(t, named+"lost", fmt.Sprint(lease))

	require.Equal(t, "no lease", fmt.Sprint((*locker.Lease)(nil)))
}
