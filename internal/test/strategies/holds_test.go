package strategies

import (
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// onHashes runs a test with two processes on each strategy that counts holds in Redis.
func onHashes(t *testing.T, test func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker)) {
	t.Helper()
	for _, name := range []string{"hashreentrant", "blpop"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			test(t, rdb, func(opts ...locker.Option) locker.Locker {
				l, err := onOneRedis[name](rdb, opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				return l
			})
		})
	}
}

// The hold of a process that died ends with its own TTL, though a live co-owner goes on
// renewing: when that one has unlocked, the key is free.
func TestDeadCoOwnerIsForgotten(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		ann, brief := locker.ContextWithOwner(t.Context(), "ann"), []locker.LockOption{locker.WithTTL(300 * time.Millisecond), locker.WithoutRenewal()}
		dead, live, other := open(), open(), open()
		for _, deadFirst := range []bool{true, false} {
			var gone, lease *locker.Lease
			var err error
			if deadFirst {
				gone, err = dead.Lock(ann, "k", brief...)
				require.NoError(t, err)
			}
			lease, err = live.Lock(ann, "k", locker.WithTTL(time.Minute))
			require.NoError(t, err)
			if !deadFirst {
				gone, err = dead.Lock(ann, "k", brief...)
				require.NoError(t, err)
			}
			<-gone.Lost()
			time.Sleep(50 * time.Millisecond) // the store keeps it for longer than the lease: time passing is the subject
			require.NoError(t, lease.Renew(ann))
			require.Equal(t, "1", rdb.HGet(t.Context(), "k", "ann").Val(), "the owner's total")
			_, err = other.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			require.NoError(t, lease.Unlock(ann))
			next, err := other.TryLock(t.Context(), "k")
			require.NoError(t, err, "no live process holds it")
			require.ErrorIs(t, gone.Unlock(ann), locker.ErrLost)
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

// When the co-owner that lasts longest has unlocked, the key ends with the others.
func TestKeyEndsWithTheLastCoOwner(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		ann := locker.ContextWithOwner(t.Context(), "ann")
		_, err := open().Lock(ann, "k", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		require.NoError(t, err)
		long, err := open().Lock(ann, "k", locker.WithTTL(time.Hour))
		require.NoError(t, err)
		require.Greater(t, rdb.PTTL(t.Context(), "k").Val(), time.Minute)
		require.NoError(t, long.Unlock(ann))
		left := rdb.PTTL(t.Context(), "k").Val()
		require.LessOrEqual(t, left, 5*time.Second)
		require.Positive(t, left)
		require.Equal(t, "1", rdb.HGet(t.Context(), "k", "ann").Val())
	})
}

// A process that is handed the made-up name of another one's hold shares it; when the
// first has died, that hold ends with its own TTL.
func TestUnnamedCoOwnerIsForgotten(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		gone, err := open().Lock(t.Context(), "k", locker.WithTTL(300*time.Millisecond), locker.WithoutRenewal())
		require.NoError(t, err)
		here, other := open(), open()
		named := locker.ContextWithOwner(t.Context(), gone.Owner())
		lease, err := here.Lock(named, "k", locker.WithTTL(time.Minute))
		require.NoError(t, err)
		require.Equal(t, gone.Token(), lease.Token())
		require.Equal(t, "2", rdb.HGet(t.Context(), "k", gone.Owner()).Val())
		<-gone.Lost()
		time.Sleep(50 * time.Millisecond) // as above
		require.NoError(t, lease.Renew(named))
		require.ErrorIs(t, gone.Renew(t.Context()), locker.ErrLost)
		require.ErrorIs(t, gone.Unlock(t.Context()), locker.ErrLost)
		_, err = other.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		require.NoError(t, lease.Unlock(named))
		next, err := other.TryLock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// A claim whose key is gone has nothing of what a process is granted since that names the
// claim's made-up owner.
func TestNamedLikeALostClaim(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		gone, err := open().Lock(t.Context(), "k", locker.WithTTL(time.Hour))
		require.NoError(t, err)
		require.NoError(t, rdb.Del(t.Context(), "k").Err())
		named := locker.ContextWithOwner(t.Context(), gone.Owner())
		lease, err := open().Lock(named, "k", locker.WithTTL(time.Minute))
		require.NoError(t, err)
		require.Greater(t, lease.Token(), gone.Token())
		fields := rdb.HGetAll(t.Context(), "k").Val()

		require.ErrorIs(t, gone.Renew(t.Context()), locker.ErrLost)
		require.LessOrEqual(t, rdb.PTTL(t.Context(), "k").Val(), time.Minute)
		require.ErrorIs(t, gone.Unlock(t.Context()), locker.ErrLost)
		require.Equal(t, fields, rdb.HGetAll(t.Context(), "k").Val())
		inner, err := open().Lock(named, "k")
		require.NoError(t, err, "a co-owner joins")
		require.Equal(t, lease.Token(), inner.Token())
		for _, l := range []*locker.Lease{inner, lease} {
			require.NoError(t, l.Unlock(named))
		}
		require.Zero(t, rdb.Exists(t.Context(), "k").Val())
	})
}

// A hash with a number in a field named like the owner is no hold of that owner.
func TestApplicationDataIsNotJoined(t *testing.T) {
	onHashes(t, func(t *testing.T, rdb *redis.Client, open func(...locker.Option) locker.Locker) {
		l := open()
		for key, votes := range map[string]map[string]string{
			"one":   {"alice": "7"},
			"two":   {"alice": "7", "bob": "3"},
			"text":  {"alice": "7", "bob": "7 8 9"},
			"empty": {"alice": "7", "": "none"},
			"claim": {"0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:1": "7"}, // no TTL: not Redisson's
		} {
			require.NoError(t, rdb.HSet(t.Context(), key, votes).Err())
			for owner := range votes {
				if owner == "" {
					continue
				}
				_, err := l.TryLock(locker.ContextWithOwner(t.Context(), owner), key)
				require.ErrorIs(t, err, locker.ErrNotAcquired, "%s as %s", key, owner)
			}
			require.Equal(t, votes, rdb.HGetAll(t.Context(), key).Val())
			require.EqualValues(t, -1, rdb.PTTL(t.Context(), key).Val(), "it has no TTL")
		}
	})
}

// A fenced process that joins the hold of one without fencing gets a token that no
// earlier holder had, and those who join after it the same.
func TestTokenOfAnUnfencedHold(t *testing.T) {
	onHashes(t, func(t *testing.T, _ *redis.Client, open func(...locker.Option) locker.Locker) {
		// Without hand-over the store knows the made-up owner.
		unfenced, one, two := open(locker.WithoutFencing(), locker.WithoutHandOver()), open(), open()
		for _, named := range []bool{true, false} {
			earlier, err := one.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, earlier.Unlock(t.Context()))

			ann := t.Context()
			if named {
				ann = locker.ContextWithOwner(ann, "ann")
			}
			held, err := unfenced.Lock(ann, "k")
			require.NoError(t, err)
			require.Zero(t, held.Token())
			ann = locker.ContextWithOwner(ann, held.Owner())
			first, err := one.Lock(ann, "k")
			require.NoError(t, err)
			require.Greater(t, first.Token(), earlier.Token())
			second, err := two.Lock(ann, "k")
			require.NoError(t, err)
			require.Equal(t, first.Token(), second.Token())
			for _, lease := range []*locker.Lease{held, first, second} {
				require.NoError(t, lease.Unlock(ann))
			}
			next, err := two.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.Greater(t, next.Token(), second.Token())
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

// A user who may not set expiries leaves nothing without one.
func TestNothingStaysWithoutPExpire(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			srv.AddUser(t, "u", "p", "~*", "&*", "+@all", "-pexpire")
			o := srv.Options()
			o.Username, o.Password = "u", "p"
			limited, rdb := redis.NewClient(o), srv.Client(t)
			defer limited.Close()
			l, err := newLocker(limited)
			require.NoError(t, err)
			defer l.Close()
			for range 2 {
				lease, err := l.Lock(t.Context(), "k", locker.WithTTL(time.Minute))
				if name == "setnx" { // which can do without
					require.NoError(t, err)
					require.NoError(t, lease.Unlock(t.Context()))
				} else {
					require.ErrorIs(t, err, locker.ErrUnavailable)
				}
				for _, key := range rdb.Keys(t.Context(), "*").Val() {
					require.Positive(t, rdb.PTTL(t.Context(), key).Val(), key)
				}
				require.Positive(t, rdb.PTTL(t.Context(), redisdriver.FenceKey("k")).Val())
			}
		})
	}
}
