package check_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/leader"
	"github.com/distlock/locker/adapters/mutex"
	"github.com/distlock/locker/adapters/once"
	"github.com/distlock/locker/strategy/memory"
)

// An adapter looks at its arguments when it is made. That is no call of the user's, so no
// event.
func TestConstructorsAreNoEvents(t *testing.T) {
	var mu sync.Mutex
	var seen []locker.Event
	l, err := memory.New(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, e)
	})))
	require.NoError(t, err)
	_, err = leader.New(l, "k")
	require.NoError(t, err)
	_, err = mutex.New(l, "k", func(error) {})
	require.NoError(t, err)
	guard, err := once.New(l)
	require.NoError(t, err)
	guard(http.NotFoundHandler())
	require.NoError(t, l.Close())
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, seen)
}
