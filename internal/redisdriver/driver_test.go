package redisdriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
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
	yes := redisconn.NewScript("yes", "local lock = unpack(KEYS)\nredis.call('INCR', lock) return 1")
	for name, during := range map[string]bool{"after": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			d, err := NewDriver(rdb, Protocol{Name: "test", Release: yes})
			require.NoError(t, err)
			if during {
				d.conn.Client().AddHook(closing{d})
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

// An abandoned command is applied before the one that follows it.
func TestNothingOvertakesAnAbandonedCommand(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]bool{"go-redis": false, "wrapped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, wrap)
			late := p.abandons(t, p.acquire)
			other := driver.Claim{Key: "another", ID: "another", Owner: "another", TTL: time.Minute}
			require.ErrorIs(t, p.Release(t.Context(), other), driver.ErrLost, "another claim does not wait")

			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := p.ends(t, p.begin(short, p.release))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, driver.MaybeApplied(err), "%v", err)

			ended := p.begin(t.Context(), p.release)
			late.Stop()
			require.NoError(t, p.ends(t, ended), "the attempt came first")
			require.Zero(t, p.direct.Exists(t.Context(), "k").Val())

			late = p.abandons(t, p.setHolds(1))
			ended = p.begin(t.Context(), p.setHolds(2))
			late.Stop()
			require.NoError(t, p.ends(t, ended))
			require.Equal(t, "2", p.direct.Get(t.Context(), "k:holds").Val())
		})
	}
}

// The properties of an error that redisconn knows reach the Locker.
func TestStoreError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := storeError(&redisconn.Error{Err: cause, Permanent: true, NotApplied: true})
	require.Equal(t, &driver.StoreError{Err: cause, Permanent: true, NotApplied: true}, err)
	require.Same(t, cause, storeError(cause))
	require.NoError(t, storeError(nil))
}

func TestFenceKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, "locker:fence:{k}", FenceKey("k"))
}
