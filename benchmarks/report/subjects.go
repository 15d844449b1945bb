//go:build unix

package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/report"
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

const redsyncModule = "github.com/go-redsync/redsync/v4"

var subjects = []report.Subject{
	ours("setnx", setnx.New),
	ours("hashreentrant", hashreentrant.New),
	ours("blpop", blpop.New),
	watching(ours("setnx WithLossDetection", setnx.New, locker.WithLossDetection())),
	withAcks(ours("setnx WithReplicaAcks", setnx.New, setnx.WithReplicaAcks(1, time.Second))),
	{Name: "redlock", Nodes: 3, Renews: true, Reports: true, Tokens: true, Check: "`Err`", Open: openRedlock},
	{Name: "redsync", Module: redsyncModule, Nodes: 1, Check: "`Until` and its clock", Open: openRedsync},
	{Name: "redsync on 3 servers", Module: redsyncModule, Nodes: 3, Check: "`Until` and its clock", Open: openRedsync},
	{Name: "redislock", Module: "github.com/bsm/redislock", Nodes: 1, Check: "`TTL`, which asks Redis", Remote: true, Open: openRedislock},
	{Name: "rueidislock", Module: "github.com/redis/rueidis", Nodes: 1, Renews: true, Reports: true, Check: "its context", Open: openRueidislock},
}

func withAcks(s report.Subject) report.Subject { s.Acks = true; return s }
func watching(s report.Subject) report.Subject { s.Watches = true; return s }

// dial makes a client with the options that people use.
func dial(t report.Target) redis.UniversalClient {
	switch t.Kind {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "redistest", SentinelAddrs: t.Addrs})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.Addrs})
	}
	return redis.NewClient(&redis.Options{Addr: t.Addrs[0]})
}

// dialEach makes a client for each of several servers.
func dialEach(t report.Target) (all []redis.UniversalClient) {
	for _, addr := range t.Addrs {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return all
}

func ours(name string, open func(redis.UniversalClient, ...locker.Option) (*locker.Client, error), opts ...locker.Option) report.Subject {
	return report.Subject{
		Name: name, Nodes: 1, Renews: true, Reports: true, Tokens: true, Check: "`Err`",
		Open: func(t report.Target, ttl time.Duration) (report.Client, error) {
			l, err := open(dial(t), append(opts, locker.WithTTL(ttl))...)
			return report.Ours(l), err
		},
	}
}

func openRedlock(t report.Target, ttl time.Duration) (report.Client, error) {
	l, err := redlock.New(dialEach(t), locker.WithTTL(ttl))
	return report.Ours(l), err
}

// openRedsync: where its 32 tries are over the caller tries again. WithFailFast is for several servers,
// without which one that does not answer costs each call its time-outs.
func openRedsync(t report.Target, ttl time.Duration) (report.Client, error) {
	var pools []redsyncredis.Pool
	if len(t.Addrs) > 1 && t.Kind == "" {
		for _, rdb := range dialEach(t) {
			pools = append(pools, goredis.NewPool(rdb))
		}
	} else {
		pools = append(pools, goredis.NewPool(dial(t)))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, key string) (report.Held, error) {
		m := rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithFailFast(len(pools) > 1))
		err := report.Again(ctx, func() error { return m.LockContext(ctx) })
		until := m.Until()
		return report.Held{
			Holds:  func(context.Context) (bool, error) { return time.Now().Before(until), nil },
			Unlock: func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err },
		}, err
	}, nil
}

// openRedislock retries every 10 ms; without a deadline of the context redislock gives up after the TTL.
func openRedislock(t report.Target, ttl time.Duration) (report.Client, error) {
	client := redislock.New(dial(t))
	return func(ctx context.Context, key string) (report.Held, error) {
		var lock *redislock.Lock
		err := report.Again(ctx, func() (err error) {
			lock, err = client.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(report.TryAgain)})
			return err
		})
		return report.Held{
			Holds:  func(ctx context.Context) (bool, error) { left, err := lock.TTL(ctx); return left > 0, err },
			Unlock: func(ctx context.Context) error { return lock.Release(ctx) },
		}, err
	}, nil
}

// openRueidislock: one key for a lock, and no notices of its own changes, as its README says for one Redis of
// 7.0.5 or newer. TryNextAfter bounds an attempt: its default of 20 ms is less than a busy machine takes now and then.
func openRueidislock(t report.Target, ttl time.Duration) (report.Client, error) {
	client := rueidis.ClientOption{InitAddress: t.Addrs}
	if t.Kind == "sentinel" {
		client.Sentinel.MasterSet = "redistest"
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: client, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second, KeyValidity: ttl})
	return func(ctx context.Context, key string) (report.Held, error) {
		held, cancel, err := l.WithContext(ctx, key)
		return report.Held{
			Holds:  func(context.Context) (bool, error) { return held.Err() == nil, nil },
			Unlock: func(context.Context) error { cancel(); return nil },
		}, err
	}, err
}
