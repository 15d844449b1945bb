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
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var libraries = []peersuite.Library{
	{Name: "setnx", Harness: narrowed(redisconformance.Strategy{Name: "setnx", New: setnx.New}.Harness, "", conformance.Capabilities{Name: "setnx", Fencing: true})},
	{
		Name: "redlock", Harness: narrowed(redisconformance.Quorum{Name: "redlock", New: redlock.New, Nodes: 3}.Harness, "",
			conformance.Capabilities{Name: "redlock", Fencing: true, Quorum: true}),
	},
	{
		Name: "redsync", Module: redsyncModule, Harness: onOne("redsync", "", redsyncDriver),
		LeftOut: map[string]string{"RenewReplyLost": sentAgain}, Why: redsyncWhy,
	},
	{
		Name: "redsync on 3 servers", Module: redsyncModule, Harness: onThree("redsync", redsyncDriver),
		LeftOut: map[string]string{"RenewReplyLost": sentAgain, "GrantHasAMajority": "a mutex does not report on how many servers it holds the lock."}, Why: redsyncWhy,
	},
	{
		Name: "redislock", Module: "github.com/bsm/redislock", Harness: onOne("redislock", "", redislockDriver),
		LeftOut: map[string]string{"RenewReplyLost": sentAgain, "TryLockReplyLost": sentAgain},
		Why: map[string]string{
			"ReleaseReplyLost":        ownRelease,
			"LinearizableUnderFaults": "a release that has freed the lock reports that the lock was lost: see the case above.",
		},
	},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis",
		Harness: onOne("rueidislock", "rueidislock:0:", rueidislockDriver),
		LeftOut: peersuite.Each(map[string][]string{
			sentAgain: {"RenewReplyLost"},
			peersuite.RenewsItself: {
				"Expires", "TakenUntilDeadline", "RenewalsDoNotAddUp", "RenewAfterLoss", "IntervalsDisjoint", "ExpiredUnlockSparesSuccessor", "UnlockAfterLossIsLostOnce",
			},
			"the function that releases a lock returns nothing.": {"StolenUnlockSparesThief", "BrokenUnlockSparesSuccessor", "ReleaseReplyLost"},
		}),
		Why: map[string]string{
			"TryLockReplyLost": ownKey, "AcquireTwice": ownKey, "AcquireReplyLost": ownKey,
			"LinearizableUnderFaults": "a lock is refused although nobody holds it: see the cases above.",
		},
	},
}

const redsyncModule = "github.com/go-redsync/redsync/v4"

var redsyncWhy = map[string]string{
	"TryLockReplyLost": redsyncsKey, "AcquireTwice": redsyncsKey, "ReleaseReplyLost": ownRelease,
	"LinearizableUnderFaults": "a lock is refused although nobody holds it: see the cases above.",
}

const (
	redsyncsKey = ownKey + " redsync deletes the key after that, and its next try can get the lock."
	sentAgain   = "the client of the library sends a command again whose reply was lost, and the case wants to see the failure."
	ownKey      = "a second sending of the command finds the key of the first, and takes it for another owner's."
	ownRelease  = "the client sends the release again, which finds nothing. The library reports that the lock was not held, although the first sending has freed it."
)

// adapted makes a Locker of a library's calls.
func adapted(name string, open func(rdbs ...*redis.Client) (peersuite.Try, func() error)) func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	return func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		var clients []*redis.Client
		for _, rdb := range rdbs {
			clients = append(clients, rdb.(*redis.Client))
		}
		try, closeLibrary := open(clients...)
		return locker.New(peersuite.Driver(name, try, closeLibrary), opts...)
	}
}

// onOne makes a server for a library on one Redis, with a proxy that loses and repeats its commands. The library's keys begin
// with the prefix.
func onOne(name, prefix string, open func(...*redis.Client) (peersuite.Try, func() error)) conformance.HarnessMaker {
	several := adapted(name, open)
	return narrowed(redisconformance.Strategy{Name: name, Op: new(ops).of, New: func(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		return several([]redis.UniversalClient{rdb}, opts...)
	}}.Harness, prefix, conformance.Capabilities{Name: name})
}

func onThree(name string, open func(...*redis.Client) (peersuite.Try, func() error)) conformance.HarnessMaker {
	return narrowed(redisconformance.Quorum{Name: name, Op: new(ops).of, New: adapted(name, open), Nodes: 3}.Harness, "",
		conformance.Capabilities{Name: name, Quorum: true})
}

// narrowed makes harnesses that have the abilities that the cases use, and the claims given.
func narrowed(of conformance.HarnessMaker, prefix string, claims conformance.Capabilities) conformance.HarnessMaker {
	claims.Break, claims.Faults = true, true
	return func(tb testing.TB) conformance.Harness {
		tb.Helper()
		return &store{faulty: of(tb).(faulty), prefix: prefix, claims: claims}
	}
}

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
	return func(ctx context.Context, key string, ttl time.Duration) (peersuite.Lock, error) {
		m := rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithFailFast(len(pools) > 1))
		return peersuite.Lock{
			Renew: func(ctx context.Context) error {
				_, err := m.ExtendContext(ctx)
				return redsyncError(err, driver.ErrLost)
			},
			Release: func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return redsyncError(err, driver.ErrLost)
			},
		}, redsyncError(m.TryLockContext(ctx), peersuite.ErrTaken)
	}, nothing
}

// redsyncError makes an answer of the server that is no failure the error it means.
func redsyncError(err, meaning error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
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

func redislockDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	client := redislock.New(rdbs[0])
	return func(ctx context.Context, key string, ttl time.Duration) (peersuite.Lock, error) {
		l, err := client.Obtain(ctx, key, ttl, nil)
		return peersuite.Lock{
			Renew: func(ctx context.Context) error {
				return meaning(l.Refresh(ctx, ttl, nil), redislock.ErrNotObtained, driver.ErrLost)
			},
			Release: func(ctx context.Context) error {
				return meaning(l.Release(ctx), redislock.ErrLockNotHeld, driver.ErrLost)
			},
		}, meaning(err, redislock.ErrNotObtained, peersuite.ErrTaken)
	}, nothing
}

// rueidislockDriver: one key for a lock, and no notices of its own changes, as its README says for one Redis of
// 7.0.5 or newer. The validity is of a Locker: there is one for each TTL.
func rueidislockDriver(rdbs ...*redis.Client) (peersuite.Try, func() error) {
	lockers := peersuite.ByTTL(func(ttl time.Duration) (rueidislock.Locker, error) {
		return rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{rdbs[0].Options().Addr}},
			KeyMajority:  1, NoLoopTracking: true, TryNextAfter: time.Second, KeyValidity: ttl,
		})
	}, rueidislock.Locker.Close)
	return func(ctx context.Context, key string, ttl time.Duration) (peersuite.Lock, error) {
		l, err := lockers.For(ttl)
		if err != nil {
			return peersuite.Lock{}, err
		}
		held, cancel, err := l.TryWithContext(context.WithoutCancel(ctx), key)
		return peersuite.Lock{
			Renew: func(context.Context) error { return meaning(held.Err(), context.Canceled, driver.ErrLost) },
			Release: func(context.Context) error {
				if held.Err() != nil {
					return driver.ErrLost
				}
				cancel()
				return nil
			},
		}, meaning(err, rueidislock.ErrNotLocked, peersuite.ErrTaken)
	}, lockers.Close
}

func meaning(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

func nothing() error { return nil }
