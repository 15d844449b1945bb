//go:build unix

package main

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var libraries = []peersuite.Library{
	{Name: "setnx", Harness: narrowed(redisconformance.Strategy{Name: "setnx", New: setnx.New}.Harness, "", conformance.Capabilities{Name: "setnx", Fencing: true})},
	{
		Name: "redlock", Harness: narrowed(redisconformance.Quorum{Name: "redlock", New: redlock.New}.Harness, "",
			conformance.Capabilities{Name: "redlock", Fencing: true, Quorum: true}),
	},
	{
		Name: "redsync", Module: redsyncModule, Harness: onOne("redsync", "", redsyncDriver),
		Why: map[string]string{"AcquireTwice": ownKey + redsyncRecovers, "LinearizableUnderFaults": refusedFree},
	},
	{
		Name: "redsync (5 servers)", Module: redsyncModule, Harness: onFive("redsync", redsyncDriver),
		LeftOut: map[string]string{"GrantHasAMajority": "a mutex does not report on how many servers it holds the lock."},
		Why:     map[string]string{"AcquireTwice": ownKey + redsyncRecovers},
	},
	{Name: "redislock", Module: "github.com/bsm/redislock", Harness: onOne("redislock", "", redislockDriver)},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis", Harness: onOne("rueidislock", "rueidislock:0:", rueidislockDriver),
		LeftOut: peersuite.Each(map[string][]string{peersuite.RenewsItself: {
			"Expires", "TakenUntilDeadline", "RenewalsDoNotAddUp", "RenewAfterLoss", "IntervalsDisjoint", "ExpiredUnlockSparesSuccessor",
			"UnlockAfterLossIsLostOnce", "RenewReplyLost", "RenewTwice",
		}}),
		Why: map[string]string{
			"AcquireTwice": ownKey + " The key stays until its TTL is over.", "LinearizableUnderFaults": refusedFree,
			"StolenUnlockSparesThief": releaseReturns, "BrokenUnlockSparesSuccessor": releaseReturns,
		},
	},
}

const (
	redsyncModule = "github.com/go-redsync/redsync/v4"

	ownKey          = "the second command finds the key that the first one has set, and the library reports that another owner holds the lock. The case wants the lock."
	redsyncRecovers = " redsync deletes the key then, so its next try can get the lock."
	releaseReturns  = "the function that releases a lock returns nothing. A loss that the lock's context has not shown yet is not reported, and the case wants an error."
	refusedFree     = "a lock is refused although nobody holds it, as in `AcquireTwice`."
)

// library opens a library on clients of the servers.
type library func(rdbs ...*redis.Client) (peersuite.Try, func() error)

// onOne makes a server for a library on one Redis, with a proxy that loses and repeats its commands. The library's keys begin
// with the prefix.
func onOne(name, prefix string, open library) conformance.HarnessMaker {
	return narrowed(func(tb testing.TB) conformance.Harness {
		tb.Helper()
		newLocker := adapted(tb, name, open)
		return redisconformance.Strategy{Name: name, Op: new(ops).of, New: func(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
			return newLocker([]redis.UniversalClient{rdb}, opts...)
		}}.Harness(tb)
	}, prefix, conformance.Capabilities{Name: name})
}

// onFive makes five servers, and a proxy for each of them.
func onFive(name string, open library) conformance.HarnessMaker {
	return narrowed(func(tb testing.TB) conformance.Harness {
		tb.Helper()
		return redisconformance.Quorum{Name: name, Op: new(ops).of, New: adapted(tb, name, open)}.Harness(tb)
	}, "", conformance.Capabilities{Name: name, Quorum: true})
}

// adapted makes Lockers of a library's calls. Its clients, which tb closes, send nothing twice: a driver does not.
func adapted(tb testing.TB, name string, open library) redisconformance.NewQuorum {
	tb.Helper()
	return func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		var clients []*redis.Client
		for _, rdb := range rdbs {
			o := *rdb.(*redis.Client).Options()
			o.MaxRetries = -1
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
			c := redis.NewClient(&o)
			tb.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		try, closeLibrary := open(clients...)
		return locker.New(peersuite.Driver(name, try, closeLibrary), opts...)
	}
}

// narrowed makes harnesses that have the abilities that the cases use, and the claims given.
func narrowed(of conformance.HarnessMaker, prefix string, claims conformance.Capabilities) conformance.HarnessMaker {
	claims.Break, claims.Faults = true, true
	return func(tb testing.TB) conformance.Harness {
		tb.Helper()
		h := of(tb).(faulty)
		// Servers are used again: ops has to see the text of each script.
		if err := h.ForgetScripts(); err != nil {
			tb.Fatalf("forgetting scripts: %v", err)
		}
		for _, op := range commands {
			h.Sent(op) // watches from now on
		}
		return &store{faulty: h, prefix: prefix, claims: claims}
	}
}

var commands = []conformance.Op{conformance.OpAcquire, conformance.OpRenew, conformance.OpRelease}

type faulty interface {
	conformance.Harness
	conformance.Breaker
	conformance.Faults
}

type store struct {
	faulty
	prefix string
	claims conformance.Capabilities
}

func (s *store) Capabilities() conformance.Capabilities { return s.claims }

func (s *store) Break(ctx context.Context, key string) error {
	return s.faulty.Break(ctx, s.prefix+key)
}
func (s *store) Expire(ctx context.Context, key string) error {
	return s.faulty.Expire(ctx, s.prefix+key)
}
func (s *store) Steal(ctx context.Context, key string) error {
	return s.faulty.Steal(ctx, s.prefix+key)
}

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

// redsyncError gives an answer its meaning. An error of a server is no answer.
func redsyncError(err, meaning error) error {
	var failed *redsync.RedisError
	var taken *redsync.ErrTaken
	if !errors.As(err, &failed) && (errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired)) {
		return meaning
	}
	return err
}

// ops recognises the commands of libraries: a script by what its text contains. A server that does not know a script
// is sent its text, so that the script is known by its hash from then on.
type ops struct{ known sync.Map }

var (
	isSet     = faultproxy.MatchCommand("SET")
	isEval    = faultproxy.MatchCommand("EVAL")
	isEvalSHA = faultproxy.MatchCommand("EVALSHA")
	taking    = regexp.MustCompile(`(?i)msetnx|"NX"`)
	renewing  = regexp.MustCompile(`(?i)pexpire`)
	releasing = regexp.MustCompile(`(?i)"del"`)
)

func (o *ops) of(cmd []string) conformance.Op {
	switch {
	case isSet(cmd):
		return conformance.OpAcquire
	case isEvalSHA(cmd) && len(cmd) > 1:
		op, _ := o.known.Load(cmd[1])
		known, _ := op.(conformance.Op)
		return known
	case isEval(cmd) && len(cmd) > 1:
		op := opOf(cmd[1])
		o.known.Store(hash(cmd[1]), op)
		return op
	}
	return ""
}

func hash(script string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(script))) }

func opOf(script string) conformance.Op {
	switch {
	case taking.MatchString(script):
		return conformance.OpAcquire
	case renewing.MatchString(script):
		return conformance.OpRenew
	case releasing.MatchString(script):
		return conformance.OpRelease
	}
	return ""
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
// 7.0.5 or newer. The validity is of a Locker: there is one for each TTL. A lock ends with the context that it was taken
// under, so that is not the command's: TryNextAfter bounds the command.
func rueidislockDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	lockers := peersuite.ByTTL(func(ttl time.Duration) (rueidislock.Locker, error) {
		return rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{rdbs[0].Options().Addr}, DisableRetry: true},
			KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second, KeyValidity: ttl,
		})
	}, rueidislock.Locker.Close)
	return func(ctx context.Context, c driver.Claim) (peersuite.Lock, error) {
		l, err := lockers.For(c.TTL)
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
	}, lockers.Close
}

func meaning(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

func nothing() error { return nil }
