//go:build unix

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func redsyncDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	var pools []redsyncredis.Pool
	for _, rdb := range rdbs {
		pools = append(pools, goredis.NewPool(rdb))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, c driver.Claim) (peersuite.Lock, error) {
		m := rs.NewMutex(c.Key, redsync.WithExpiry(c.TTL), redsync.WithFailFast(len(pools) > 1),
			redsync.WithGenValueFunc(func() (string, error) { return c.ID, nil }))
		if err := m.TryLockContext(ctx); err != nil {
			return peersuite.Lock{}, redsyncError(err, peersuite.ErrTaken)
		}
		var one sync.Mutex // a redsync.Mutex is for one goroutine at a time
		return peersuite.Lock{
			Renew: func(ctx context.Context) error {
				one.Lock()
				defer one.Unlock()
				_, err := m.ExtendContext(ctx)
				return redsyncError(err, driver.ErrLost)
			},
			Release: func(ctx context.Context) error {
				one.Lock()
				defer one.Unlock()
				_, err := m.UnlockContext(ctx)
				return redsyncError(err, driver.ErrLost)
			},
		}, nil
	}, nothing
}

// redsyncError returns as for an answer that the lock is not ours. An error of a server is no answer.
func redsyncError(err, as error) error {
	var failed *redsync.RedisError
	var taken *redsync.ErrTaken
	if !errors.As(err, &failed) && (errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired)) {
		return as
	}
	return err
}

// redislockDriver: the token is the claim's id. The library lets a token take its lock again, and so a release gets the lock first
// where Obtain has failed.
func redislockDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	client := redislock.New(rdbs[0])
	return func(ctx context.Context, c driver.Claim) (peersuite.Lock, error) {
		obtain := func(ctx context.Context) (*redislock.Lock, error) {
			return client.Obtain(ctx, c.Key, c.TTL, &redislock.Options{Token: c.ID})
		}
		l, err := obtain(ctx)
		if err != nil {
			return peersuite.Lock{Release: func(ctx context.Context) error {
				l, err := obtain(ctx)
				if err != nil {
					return meaning(err, redislock.ErrNotObtained, driver.ErrLost)
				}
				return l.Release(ctx)
			}}, meaning(err, redislock.ErrNotObtained, peersuite.ErrTaken)
		}
		return peersuite.Lock{
			Renew: func(ctx context.Context) error {
				return meaning(l.Refresh(ctx, c.TTL, nil), redislock.ErrNotObtained, driver.ErrLost)
			},
			Release: func(ctx context.Context) error {
				return meaning(l.Release(ctx), redislock.ErrLockNotHeld, driver.ErrLost)
			},
		}, nil
	}, nothing
}

// rueidislockDriver: one key for a lock, and no notices of its own changes, as its README says for one Redis of
// 7.0.5 or newer. A lock ends with the context that it was taken under, so that is not the command's: TryNextAfter bounds
// the command.
func rueidislockDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	lockers := rueidislockers{addr: rdbs[0].Options().Addr, all: map[time.Duration]rueidislock.Locker{}}
	return func(ctx context.Context, c driver.Claim) (peersuite.Lock, error) {
		l, err := lockers.of(c.TTL)
		if err != nil {
			return peersuite.Lock{}, err
		}
		held, cancel, err := l.TryWithContext(context.WithoutCancel(ctx), c.Key)
		if err != nil {
			return peersuite.Lock{}, meaning(err, rueidislock.ErrNotLocked, peersuite.ErrTaken)
		}
		return peersuite.Lock{
			Renew: func(context.Context) error { return meaning(held.Err(), context.Canceled, driver.ErrLost) },
			Release: func(context.Context) error {
				if held.Err() != nil {
					return driver.ErrLost
				}
				cancel()
				return nil
			},
		}, nil
	}, lockers.close
}

// rueidislockers has a Locker for each TTL: the TTL is the Locker's.
type rueidislockers struct {
	addr string
	mu   sync.Mutex
	all  map[time.Duration]rueidislock.Locker
}

func (r *rueidislockers) of(ttl time.Duration) (rueidislock.Locker, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.all[ttl]; l != nil {
		return l, nil
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{r.addr}, DisableRetry: true},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second, KeyValidity: ttl,
	})
	if err == nil {
		r.all[ttl] = l
	}
	return l, err
}

func (r *rueidislockers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.all {
		l.Close()
	}
	return nil
}

// meaning returns to in place of from.
func meaning(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

func nothing() error { return nil }
