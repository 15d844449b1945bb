package redisdriver

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/stretchr/testify/require"
)

// Attempts that wait for replicas hold up no release, and no renewal but by what it waits
// itself, however many.
func TestWaitingForReplicasHoldsUpNothing(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	_, err := l.Configure(driver.Config{Logger: slog.New(slog.DiscardHandler), Options: []any{replicaAcks{n: 1, timeout: maxAckTimeout}}})
	require.NoError(t, err)
	held := driver.Claim{Key: "held", ID: "held", Owner: "held", TTL: time.Minute}
	require.NoError(t, l.direct.Set(t.Context(), held.Key, held.ID, time.Minute).Err())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 60 {
		go func() {
			c := driver.Claim{Key: fmt.Sprint(n), ID: "id", Owner: "id", TTL: time.Minute}
			_, _ = l.Acquire(ctx, driver.Request{Claim: c})
		}()
	}
	require.Eventually(t, func() bool {
		n, err := l.direct.DBSize(t.Context()).Result()
		return err == nil && n > redisconn.ReplicaPool
	}, soon, time.Millisecond, "they wait for replicas")
	began := time.Now()
	l.Renew(t.Context(), []driver.Claim{held}, func(_ int, e error) { err = e })
	require.ErrorContains(t, err, "0 of the 1 replicas")
	require.Less(t, time.Since(began), 2*maxAckTimeout)
	began = time.Now()
	require.NoError(t, l.Release(t.Context(), held))
	require.Less(t, time.Since(began), maxAckTimeout/3)
}
