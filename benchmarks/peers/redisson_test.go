package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redisson's semaphores, re-enacted: the commands of their scripts, and the way in which their callers wait. The
// number of free permits is a string. A release adds to it and publishes it. Callers of a process share one
// subscription and a latch: a message lets so many of them try again as it says that permits are free.
// (RedissonSemaphore, RedissonPermitExpirableSemaphore, SemaphorePubSub and RedissonLockEntry of Redisson 3.)

const (
	rSemaphoreKey     = "redisson"
	rSemaphoreChannel = "redisson_sc:{redisson}"
)

var (
	rAcquire = redis.NewScript(`
local free = redis.call('GET', KEYS[1])
if free and tonumber(free) >= tonumber(ARGV[1]) then
  redis.call('DECRBY', KEYS[1], ARGV[1])
  return 1
end
return 0`)
	rRelease = redis.NewScript(`
redis.call('PUBLISH', KEYS[2], redis.call('INCRBY', KEYS[1], ARGV[1]))
return 1`)
	// Replies -1 if the permit is granted; else when the first of the others ends, in ms, or 0.
	rAcquireExpirable = redis.NewScript(`
local ended = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[3], 'LIMIT', 0, ARGV[1])
if #ended > 0 then
  redis.call('ZREM', KEYS[2], unpack(ended))
  local free = redis.call('INCRBY', KEYS[1], #ended)
  if free > 0 then
    redis.call('PUBLISH', KEYS[3], free)
  end
end
local free = redis.call('GET', KEYS[1])
if free and tonumber(free) >= tonumber(ARGV[1]) then
  redis.call('DECRBY', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[2], ARGV[4])
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then
    redis.call('PEXPIRE', KEYS[2], left)
  end
  return -1
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return first[2] and tonumber(first[2]) or 0`)
	rReleaseExpirable = redis.NewScript(`
local ends = redis.call('ZSCORE', KEYS[3], ARGV[1])
if redis.call('ZREM', KEYS[3], ARGV[1]) ~= 1 then
  return 0
end
redis.call('PUBLISH', KEYS[2], redis.call('INCRBY', KEYS[1], 1))
return tonumber(ends) > tonumber(ARGV[2]) and 1 or 0`)
)

// latch is where the callers of a process wait.
type latch struct {
	mu      sync.Mutex
	waiting int
	tries   chan struct{} // one element lets one caller try again
}

// openLatch subscribes, which Redisson does while somebody waits: here that is all the time.
func openLatch(rdb *redis.Client) (*latch, error) {
	l := &latch{tries: make(chan struct{}, 1<<20)}
	sub := rdb.Subscribe(context.Background(), rSemaphoreChannel)
	if _, err := sub.Receive(context.Background()); err != nil {
		return nil, err
	}
	go func() {
		for m := range sub.Channel(redis.WithChannelSize(1 << 16)) {
			free, _ := strconv.Atoi(m.Payload)
			l.mu.Lock()
			n := min(l.waiting, free)
			l.mu.Unlock()
			for range n {
				l.tries <- struct{}{}
			}
		}
	}()
	return l, nil
}

// wait calls try until that is granted. try returns for how long a caller waits without a message.
func (l *latch) wait(ctx context.Context, try func() (granted bool, atMost time.Duration, err error)) error {
	granted, _, err := try()
	if granted || err != nil {
		return err
	}
	l.mu.Lock()
	l.waiting++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	for {
		granted, atMost, err := try()
		if granted || err != nil {
			return err
		}
		timer := time.NewTimer(atMost)
		select {
		case <-l.tries:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

func openRSemaphore(rdb *redis.Client) (acquireFunc, error) {
	l, err := openLatch(rdb)
	return func(ctx context.Context) (func(context.Context) error, error) {
		err := l.wait(ctx, func() (bool, time.Duration, error) {
			n, err := rAcquire.Run(ctx, rdb, []string{rSemaphoreKey}, 1).Int()
			return n == 1, time.Hour, err
		})
		return func(ctx context.Context) error {
			return rRelease.Run(ctx, rdb, []string{rSemaphoreKey, rSemaphoreChannel}, 1).Err()
		}, err
	}, err
}

func openExpirable(rdb *redis.Client) (acquireFunc, error) {
	const ends = "{" + rSemaphoreKey + "}:timeout"
	l, err := openLatch(rdb)
	return func(ctx context.Context) (func(context.Context) error, error) {
		id := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
		err := l.wait(ctx, func() (bool, time.Duration, error) {
			now := time.Now()
			n, err := rAcquireExpirable.Run(ctx, rdb, []string{rSemaphoreKey, ends, rSemaphoreChannel},
				1, now.Add(usualTTL).UnixMilli(), now.UnixMilli(), id).Int64()
			atMost := time.Hour
			if n > 0 {
				atMost = time.Until(time.UnixMilli(n))
			}
			return n == -1, atMost, err
		})
		return func(ctx context.Context) error {
			n, err := rReleaseExpirable.Run(ctx, rdb, []string{rSemaphoreKey, rSemaphoreChannel, ends}, id, time.Now().UnixMilli()).Int()
			return refused(n != 1, err)
		}, err
	}, err
}
