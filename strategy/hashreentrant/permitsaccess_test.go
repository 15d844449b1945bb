package hashreentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// keeperWithout is a driver of a user who may do everything but call one command.
func keeperWithout(t *testing.T, srv *redistest.Server, command string) driver.Driver {
	t.Helper()
	srv.AddUser(t, command, "secret", "~*", "&*", "+@all", "-"+command)
	o := srv.Options()
	o.Username, o.Password = command, "secret"
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	d, err := hashreentrant.NewDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// If the server refuses a command in the middle of a script, no permit is granted twice, none is gone for longer than
// the keys last, and no key stays for ever.
func TestPermitsOfARefusedUser(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	sound, err := hashreentrant.NewDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sound.Close() })
	for _, command := range []string{"hset", "hmget", "zadd", "zrem", "zrange", "zrangebyscore", "zscore", "pexpire", "pexpireat", "publish", "time"} {
		t.Run(command, func(t *testing.T) {
			refusedInTheMiddle(t, rdb, keeperWithout(t, srv, command), sound)
		})
	}
}

// A user who may not publish gives permits back nevertheless.
func TestPermitsOfAUserWithoutPublish(t *testing.T) {
	t.Parallel()
	d := keeperWithout(t, redistest.Start(t), "publish")
	require.True(t, takePermits(t, d, idOf(1), time.Hour, 1, 2).Granted)
	require.NoError(t, d.Release(t.Context(), driver.Claim{Key: "k", ID: idOf(1), Permits: 1, Limit: 2}))
	require.Zero(t, out(t, d))
}

func refusedInTheMiddle(t *testing.T, rdb *redis.Client, refused, sound driver.Driver) {
	t.Helper()
	t.Cleanup(func() { _ = rdb.Del(context.Background(), "k", permitsKey).Err() })
	const limit = 3
	// takesAndGives makes an attempt, a release, and then what the engine does in the background.
	takesAndGives := func(n int, then func()) {
		t.Helper()
		c := driver.Claim{Key: "k", ID: idOf(n), Owner: idOf(n), TTL: 2 * time.Hour, Permits: 1, Limit: limit}
		a, err := refused.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
		if err == nil {
			require.True(t, a.Granted, "there is room")
			require.True(t, rdb.HExists(t.Context(), "k", c.ID).Val(), "it was granted")
			_ = refused.Release(t.Context(), c)
		} else {
			require.True(t, driver.IsPermanent(err), err)
		}
		then()
		if err := sound.Release(t.Context(), c); !errors.Is(err, driver.ErrLost) {
			require.NoError(t, err)
		}
	}
	takesAndGives(1, func() {
		for _, key := range []string{"k", permitsKey} {
			require.NotEqual(t, time.Duration(-1), rdb.PTTL(t.Context(), key).Val(), "%s stays for ever", key)
		}
	})
	require.Zero(t, rdb.Exists(t.Context(), "k", permitsKey).Val())

	for n := 2; n <= 4; n++ { // others have an hour; one of them has ended
		require.True(t, takePermits(t, sound, idOf(n), time.Hour, 1, limit).Granted)
	}
	setEnd(t, rdb, idOf(2), -time.Minute)
	takesAndGives(5, func() {})
	require.Equal(t, 2, out(t, sound))
	require.True(t, takePermits(t, sound, idOf(6), time.Hour, 1, limit).Granted)
	require.False(t, takePermits(t, sound, idOf(7), time.Hour, 1, limit).Granted, "three are out")
}
