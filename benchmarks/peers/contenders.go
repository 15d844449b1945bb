package main

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The kinds of contenders. The floors cannot wait for a lock; what is in renewed keeps a
// lock for as long as it is held.
var (
	peers   = []string{"redsync", "redislock", "rueidislock"}
	ours    = []string{"setnx", "hashreentrant", "blpop"}
	waiting = slices.Concat(peers, ours)
	renewed = append([]string{"rueidislock"}, ours...)
	all     = append([]string{"floor", "autopipeline"}, waiting...)
)

// contenders open a client each, set up as its documentation shows. A ttl of 0 is the
// contender's default.
var contenders = map[string]func(addrs []string, ttl time.Duration) (lockFunc, error){
	"floor":         func(addrs []string, _ time.Duration) (lockFunc, error) { return floor(dial(addrs[0])), nil },
	"autopipeline":  openAutoPipeline,
	"redsync":       openRedsync,
	"redislock":     openRedislock,
	"rueidislock":   openRueidislock,
	"setnx":         openOurs(setnx.New),
	"hashreentrant": openOurs(hashreentrant.New),
	"blpop":         openOurs(blpop.New),
	"redlock":       openRedlock,
}

type lockFunc func(ctx context.Context, key string, ttl time.Duration) (hold, error)

// A hold is a lock that is held.
type hold struct {
	unlock func(context.Context) error
	lost   func() error // nil as long as it is held; not known of contenders that do not renew
}

func dial(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

const usualTTL = 30 * time.Second

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// refused returns the error of a call that was answered, with a refusal or without one.
func refused(is bool, err error) error {
	if err == nil && is {
		err = errors.New("refused")
	}
	return err
}

// floor returns the least that a lock can cost: the two commands, without a library.
func floor(rdb redis.Cmdable) lockFunc {
	return func(ctx context.Context, key string, _ time.Duration) (hold, error) {
		value := rand.Text()
		ok, err := rdb.SetNX(ctx, key, value, usualTTL).Result()
		return hold{unlock: func(ctx context.Context) error {
			n, err := compareAndDelete.Run(ctx, rdb, []string{key}, value).Int()
			return refused(n == 0, err)
		}}, refused(!ok, err)
	}
}

func openAutoPipeline(addrs []string, _ time.Duration) (lockFunc, error) {
	ap, err := dial(addrs[0]).AutoPipeline()
	return floor(ap), err
}

// openRedsync: on several servers WithFailFast, without which a server that does not
// answer costs each pair its time-outs. Where the 32 tries of its default are over, the
// caller tries again.
func openRedsync(addrs []string, _ time.Duration) (lockFunc, error) {
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(dial(addr)))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, key string, _ time.Duration) (hold, error) {
		m := rs.NewMutex(key, redsync.WithFailFast(len(addrs) > 1))
		err := m.LockContext(ctx)
		for taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) && ctx.Err() == nil; {
			err = m.LockContext(ctx)
		}
		return hold{unlock: func(ctx context.Context) error {
			ok, err := m.UnlockContext(ctx)
			return refused(!ok, err)
		}}, err
	}, nil
}

// openRedislock retries more often than redislock's example, which waits for 100 ms, in
// favour of its hand-overs.
func openRedislock(addrs []string, _ time.Duration) (lockFunc, error) {
	client := redislock.New(dial(addrs[0]))
	return func(ctx context.Context, key string, _ time.Duration) (hold, error) {
		lock, err := client.Obtain(ctx, key, usualTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)})
		return hold{unlock: lock.Release}, err
	}, nil
}

// openRueidislock: one key a lock and no notices of one's own, as its README says for one
// server of Redis 7.0.5 or newer. TryNextAfter bounds an attempt: with its default of
// 20 ms none would succeed at such a distance.
func openRueidislock(addrs []string, ttl time.Duration) (lockFunc, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs[:1]},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second, KeyValidity: ttl,
	})
	return func(ctx context.Context, key string, _ time.Duration) (hold, error) {
		ctx, cancel, err := l.WithContext(ctx, key)
		return hold{func(context.Context) error { cancel(); return nil }, func() error { return ctx.Err() }}, err
	}, err
}

func openOurs(open func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)) func([]string, time.Duration) (lockFunc, error) {
	return func(addrs []string, _ time.Duration) (lockFunc, error) {
		l, err := open(dial(addrs[0]))
		return locking(l), err
	}
}

func openRedlock(addrs []string, _ time.Duration) (lockFunc, error) {
	var rdbs []redis.UniversalClient
	for _, addr := range addrs {
		rdbs = append(rdbs, dial(addr))
	}
	l, err := redlock.New(rdbs)
	return locking(l), err
}

func locking(l locker.Locker) lockFunc {
	return func(ctx context.Context, key string, ttl time.Duration) (hold, error) {
		var opts []locker.LockOption
		if ttl > 0 {
			opts = append(opts, locker.WithTTL(ttl))
		}
		lease, err := l.Lock(ctx, key, opts...)
		return hold{lease.Unlock, lease.Err}, err
	}
}
