package blpop

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// A waiter whose owner holds the key in another process joins that hold, though others
// wait before it here.
func TestOwnerJoinsPastTheQueue(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	elsewhere, err := New(rdb)
	require.NoError(t, err)
	here, err := New(rdb)
	require.NoError(t, err)
	ann := locker.ContextWithOwner(t.Context(), "ann")
	lease, err := elsewhere.Lock(ann, "k")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	bob := make(chan error, 1)
	go func() {
		_, err := here.Lock(ctx, "k")
		bob <- err
	}()
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), queueOfK).Val() == 1 }, 10*time.Second, time.Millisecond, "bob waits here")
	again, err := here.Lock(ann, "k", locker.WithWait(10*time.Second))
	require.NoError(t, err)
	require.Equal(t, lease.Token(), again.Token())
	cancel()
	require.ErrorIs(t, <-bob, context.Canceled)
	require.NoError(t, again.Unlock(ann))
	require.NoError(t, lease.Unlock(ann))
	require.NoError(t, here.Close())
	require.NoError(t, elsewhere.Close())
}
