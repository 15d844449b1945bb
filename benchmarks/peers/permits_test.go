package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/test/contention"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	permitsKey = contention.Key
	permitsOf  = contention.Permits
)

// acquireFunc waits for a permit, and returns how to give it back.
type acquireFunc = contention.Acquire

type permitsContender struct {
	name string
	open func(rdb *redis.Client) (acquireFunc, error)
}

var permitsContenders = []permitsContender{
	{"hashreentrant", openSemaphore(hashreentrant.New)}, {"setnx", openSemaphore(setnx.New)},
	{"hashreentrant WithoutHandOver", openSemaphore(hashreentrant.New, locker.WithoutHandOver())},
	{"RSemaphore", openRSemaphore}, {"RPermitExpirableSemaphore", openExpirable},
	{"redsync", openRedsyncs},
}

func openSemaphore(open func(redis.UniversalClient, ...locker.Option) (*locker.Client, error), opts ...locker.Option) func(*redis.Client) (acquireFunc, error) {
	return func(rdb *redis.Client) (acquireFunc, error) {
		l, err := open(rdb, opts...)
		if err != nil {
			return nil, err
		}
		return contention.Semaphore(l)
	}
}

// openRedsyncs makes a semaphore of as many locks as there are permits. A caller tries all of them once, beginning
// with any, and waits for as long as redsync does between two tries.
func openRedsyncs(rdb *redis.Client) (acquireFunc, error) {
	rs := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context) (func(context.Context) error, error) {
		for {
			first := rand.N(permitsOf)
			for i := range permitsOf {
				m := rs.NewMutex(fmt.Sprintf("%s:%d", permitsKey, (first+i)%permitsOf), redsync.WithExpiry(usualTTL))
				err := m.TryLockContext(ctx)
				if taken := (*redsync.ErrTaken)(nil); err != nil && !errors.As(err, &taken) {
					return nil, err
				}
				if err == nil {
					return func(ctx context.Context) error {
						ok, err := m.UnlockContext(ctx)
						return refused(!ok, err)
					}, nil
				}
			}
			if !bound.Sleep(ctx, nil, 50*time.Millisecond+rand.N(200*time.Millisecond)) {
				return nil, ctx.Err()
			}
		}
	}, nil
}

// servePermits does not return in a process of BenchmarkPermits.
func servePermits() {
	contention.Serve(func(contender, addr string) (acquireFunc, error) {
		// As many connections as Redisson has by default: for all contenders.
		rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, PoolTimeout: time.Minute})
		i := slices.IndexFunc(permitsContenders, func(c permitsContender) bool { return c.name == contender })
		return permitsContenders[i].open(rdb)
	})
}

// BenchmarkPermits: see contention.Measure. Run it with -benchtime 1x -count 3.
func BenchmarkPermits(b *testing.B) {
	for _, c := range permitsContenders {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				runPermits(b, c.name)
			}
		})
	}
}

func runPermits(b *testing.B, contender string) {
	b.Helper()
	server := redistest.Start(b)
	rdb := server.Client(b)
	if err := rdb.Set(b.Context(), rSemaphoreKey, permitsOf, 0).Err(); err != nil {
		b.Fatal(err)
	}
	admin := bench{admins: []*redis.Client{rdb}}
	contention.Measure(b, contender, server.Addr(), func() (float64, error) {
		i, err := admin.info(b.Context())
		return i.cpu(), err
	})
}
