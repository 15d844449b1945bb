//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
