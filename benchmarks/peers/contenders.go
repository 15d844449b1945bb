package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// A contender is something that locks, set up as its documentation shows.
type contender struct {
	name string
	open func(addrs []string, ttl time.Duration) (locks, error)
}

// locks is one client of a contender, as a process has it. A ttl of 0, here and in
// open, is the contender's default.
type locks interface {
	lock(ctx context.Context, key string, ttl time.Duration) (hold, error)
}

// A hold is a lock that is held. Err is an error once it is known to be lost; of a
// contender that does not watch its locks it is nil.
type hold interface {
	Unlock(context.Context) error
	Err() error
}

// The kinds of contenders. Only the floors cannot wait for a lock.
var (
	floors  = []string{"floor", "autopipeline"}
	peers   = []string{"redsync", "redislock", "rueidislock"}
	ours    = []string{"setnx", "hashreentrant", "blpop"}
	waiting = slices.Concat(peers, ours)
	renewed = append([]string{"rueidislock"}, ours...) // those that keep a lock for as long as it is held
	all     = slices.Concat(floors, waiting)
)

var contenders = []contender{
	{"floor", openFloor},
	{"autopipeline", openAutoPipeline},
	{"redsync", openRedsync},
	{"redislock", openRedislock},
	{"rueidislock", openRueidislock},
	{"setnx", openOurs(setnx.New)},
	{"hashreentrant", openOurs(hashreentrant.New)},
	{"blpop", openOurs(blpop.New)},
	{"redlock", openRedlock},
}

func openContender(name string, addrs []string, ttl time.Duration) (locks, error) {
	for _, c := range contenders {
		if c.name == name {
			return c.open(addrs, ttl)
		}
	}
	return nil, fmt.Errorf("no contender is called %q", name)
}

func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}

// floor is what a lock costs at least: the two commands, without a library.
type floor struct{ rdb redis.Cmdable }

const floorTTL = 30 * time.Second

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func openFloor(addrs []string, _ time.Duration) (locks, error) {
	return floor{dial(addrs[0])}, nil
}

func openAutoPipeline(addrs []string, _ time.Duration) (locks, error) {
	ap, err := dial(addrs[0]).AutoPipeline()
	return floor{ap}, err
}

func (f floor) lock(ctx context.Context, key string, _ time.Duration) (hold, error) {
	h := floorHold{f.rdb, key, rand.Text()}
	ok, err := f.rdb.SetNX(ctx, key, h.value, floorTTL).Result()
	if err == nil && !ok {
		err = errors.New("the key is taken")
	}
	return h, err
}

type floorHold struct {
	rdb        redis.Cmdable
	key, value string
}

func (h floorHold) Unlock(ctx context.Context) error {
	n, err := compareAndDelete.Run(ctx, h.rdb, []string{h.key}, h.value).Int()
	if err == nil && n != 1 {
		err = errors.New("the key was not ours")
	}
	return err
}

func (h floorHold) Err() error { return nil }

type redsyncLocks struct {
	rs   *redsync.Redsync
	opts []redsync.Option
}

// openRedsync: on several servers WithFailFast, without which a server that does not
// answer costs each pair its time-outs.
func openRedsync(addrs []string, _ time.Duration) (locks, error) {
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(dial(addr)))
	}
	l := redsyncLocks{rs: redsync.New(pools...)}
	if len(addrs) > 1 {
		l.opts = append(l.opts, redsync.WithFailFast(true))
	}
	return l, nil
}

// lock goes on after the 32 tries of redsync's default.
func (l redsyncLocks) lock(ctx context.Context, key string, _ time.Duration) (hold, error) {
	m := l.rs.NewMutex(key, l.opts...)
	for {
		err := m.LockContext(ctx)
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) && ctx.Err() == nil {
			continue
		}
		return redsyncHold{m}, err
	}
}

type redsyncHold struct{ m *redsync.Mutex }

func (h redsyncHold) Unlock(ctx context.Context) error {
	ok, err := h.m.UnlockContext(ctx)
	if !ok && err == nil {
		err = errors.New("redsync: the lock was not held")
	}
	return err
}

func (h redsyncHold) Err() error { return nil }

type redislockLocks struct{ client *redislock.Client }

func openRedislock(addrs []string, _ time.Duration) (locks, error) {
	return redislockLocks{redislock.New(dial(addrs[0]))}, nil
}

// redislockRetry is shorter than the 100 ms of redislock's example, in favour of its
// hand-overs.
const redislockRetry = 10 * time.Millisecond

func (l redislockLocks) lock(ctx context.Context, key string, _ time.Duration) (hold, error) {
	lock, err := l.client.Obtain(ctx, key, floorTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)})
	return redislockHold{lock}, err
}

type redislockHold struct{ l *redislock.Lock }

func (h redislockHold) Unlock(ctx context.Context) error { return h.l.Release(ctx) }
func (h redislockHold) Err() error                       { return nil }

type rueidisLocks struct{ l rueidislock.Locker }

// openRueidislock: one key a lock and no loop of notices, as its README says for one
// server of Redis 7.0.5 or newer. TryNextAfter bounds an attempt; with its default of
// 20 ms no attempt succeeds at that distance.
func openRueidislock(addrs []string, ttl time.Duration) (locks, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs[:1]},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    ttl,
		TryNextAfter:   time.Second,
	})
	return rueidisLocks{l}, err
}

func (l rueidisLocks) lock(ctx context.Context, key string, _ time.Duration) (hold, error) {
	ctx, cancel, err := l.l.WithContext(ctx, key)
	return rueidisHold{ctx, cancel}, err
}

type rueidisHold struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (h rueidisHold) Unlock(context.Context) error { h.cancel(); return nil }
func (h rueidisHold) Err() error                   { return h.ctx.Err() }

type ourLocks struct{ l locker.Locker }

func openOurs(open func(redis.UniversalClient, ...locker.Option) (locker.Locker, error)) func([]string, time.Duration) (locks, error) {
	return func(addrs []string, _ time.Duration) (locks, error) {
		l, err := open(dial(addrs[0]))
		return ourLocks{l}, err
	}
}

func openRedlock(addrs []string, _ time.Duration) (locks, error) {
	var rdbs []redis.UniversalClient
	for _, addr := range addrs {
		rdbs = append(rdbs, dial(addr))
	}
	l, err := redlock.New(rdbs)
	return ourLocks{l}, err
}

func (l ourLocks) lock(ctx context.Context, key string, ttl time.Duration) (hold, error) {
	if ttl == 0 {
		return l.l.Lock(ctx, key)
	}
	return l.l.Lock(ctx, key, locker.WithTTL(ttl))
}
