package redisdriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// closing closes a driver when its private client is about to send a command.
type closing struct{ d *Driver }

func (closing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h closing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.d.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			return err
		}
		return next(ctx, cmd)
	}
}

func (closing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A release works after Close, and when Close comes in the middle of it: it is
// sent by the caller's client then.
func TestReleaseAndClose(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	yes := newScript("yes", "local lock = unpack(KEYS)\nredis.call('INCR', lock) return 1")
	for name, during := range map[string]bool{"after": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			d, err := NewDriver(rdb, Protocol{Name: "test", Release: yes})
			require.NoError(t, err)
			if during {
				d.c.control.AddHook(closing{d})
			} else {
				require.NoError(t, d.Close())
			}
			c := driver.Claim{Key: "release and close " + name, ID: "id", Owner: "id", TTL: time.Second}
			require.NoError(t, d.Release(t.Context(), c))
			require.NoError(t, d.Release(t.Context(), c), "and ever after")
			n, err := rdb.Get(t.Context(), c.Key).Int()
			require.NoError(t, err)
			require.Equal(t, 2, n, "each release was carried out once")
			require.NoError(t, rdb.Ping(t.Context()).Err(), "the caller's client stays open")
		})
	}
}
