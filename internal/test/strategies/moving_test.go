package strategies

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// While a slot moves, a holder renews and unlocks at once, wherever its lock is and whichever
// of the other keys have moved.
func TestHolderWhileItsSlotMoves(t *testing.T) {
	c := redistest.StartCluster(t, 2, 0)
	rdb := c.Client(t)
	for name, newLocker := range onOneRedis {
		l, err := newLocker(rdb)
		require.NoError(t, err)
		defer l.Close()
		other, err := newLocker(rdb)
		require.NoError(t, err)
		defer other.Close()
		for i, what := range []string{"the lock", "its counter", "its queue", "its lock and its counter", "its lock and its queue", "nothing"} {
			for _, waiting := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s has moved, waiting %v", name, what, waiting), func(t *testing.T) {
					key := fmt.Sprintf("%s %d %v", name, i, waiting)
					fence, queue := redisdriver.FenceKey(key), redisconn.AuxKey("locker:queue:", key)
					moved := [][]string{{key}, {fence}, {queue}, {key, fence}, {key, queue}, {"none"}}[i]
					lease, err := l.Lock(t.Context(), key)
					require.NoError(t, err)
					waited := make(chan error, 1)
					if waiting {
						go func() {
							lease, err := other.Lock(t.Context(), key)
							if err == nil {
								err = lease.Unlock(t.Context())
							}
							waited <- err
						}()
						require.Eventually(t, func() bool {
							return name != "blpop" || rdb.Exists(t.Context(), queue).Val() == 1
						}, 10*time.Second, time.Millisecond, "it waits")
					}
					move := c.StartMove(t, c.Slot(t, key), 1-c.ShardOf(t, key))
					move.MoveKeys(t, moved...)
					ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
					defer cancel()
					require.NoError(t, lease.Renew(ctx))
					require.NoError(t, lease.Unlock(ctx))
					move.Finish(t) // keys that were made anew on the other node would be in the way
					if waiting {
						require.NoError(t, <-waited)
					}
					require.Zero(t, rdb.Exists(t.Context(), key).Val())
				})
			}
		}
	}
}
