package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy/hashreentrant"
)

func TestMain(m *testing.M) {
	child.Serve("candidate", candidate)
	child.Serve("stepping down", steppingDown)
	child.Serve("observing", observing)
	leaktest.Main(m)
}

// An operator deletes the lock of a leader: its term ends, and the next one has a greater
// token.
func TestOnRedis(t *testing.T) {
	server := redistest.Shared(t)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	type term struct {
		who   int
		token int64
	}
	began, lost := make(chan term), make(chan term, 2)
	ended := make(chan error)
	for i := range 2 {
		l, err := hashreentrant.New(server.Client(t))
		require.NoError(t, err)
		defer l.Close()
		lead := func(ctx context.Context, token int64) error {
			began <- term{i, token}
			<-ctx.Done()
			lost <- term{i, token}
			return ctx.Err()
		}
		go func() {
			ended <- leader.Run(ctx, l, "leader/"+t.Name(), lead, leader.WithLockOptions(locker.WithTTL(time.Second)))
		}()
	}
	first := <-began
	require.Empty(t, lost)
	require.NoError(t, server.Client(t).Del(ctx, "leader/"+t.Name()).Err())
	second := <-began
	require.Greater(t, second.token, first.token)
	require.Equal(t, first, <-lost)
	stop()
	for range 2 {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
}
