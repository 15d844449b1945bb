//go:build unix

// Command suite runs cases of the conformance suite on strategy etcd and on etcd's own package concurrency, behind a
// thin driver, and writes what happened into docs/peers.md. It is to be run in this module, whose internal/member
// it compiles.
//
//	go run ./internal/suite -only concurrency
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() { os.Exit(members.Tests{M: program{}}.Run()) }

// program runs under members.Tests.
type program struct{}

func (program) Run() int { return etcdSuite().Main() }

func etcdSuite() peersuite.Suite {
	return peersuite.Suite{
		Store: "etcd", Command: "go -C strategy/etcd run ./internal/suite", Server: func() string { return "etcd " + version.Version },
		Cases: "^(exclusion|lease|ownership)/", Libraries: libraries,
	}
}

var libraries = []peersuite.Library{
	{
		Name: "etcd", Harness: on("etcd", true, func(key string) string { return "locker/" + key + "\x00\x01" },
			func(client *clientv3.Client) driver.Driver { return etcd.NewDriver(client) }),
	},
	{
		Name: "concurrency", Module: "go.etcd.io/etcd/client/v3", Harness: on("concurrency", false, func(key string) string { return key + "/" }, concurrencyDriver),
		LeftOut: peersuite.Each(map[string][]string{
			peersuite.RenewsItself: {"Expires", "TakenUntilDeadline", "RenewalsDoNotAddUp", "RenewAfterLoss", "IntervalsDisjoint", "ExpiredUnlockSparesSuccessor", "UnlockAfterLossIsLostOnce"},
		}),
		Why: peersuite.Each(map[string][]string{
			"the session is lost when its lease ends. It does not look at the key of the lock, so a key that was deleted or replaced is not noticed.": {
				"BreakIsNoticed", "RenewalNeverResurrects", "RenewalAfterBrokenPredecessor",
			},
			"`Unlock` deletes its own key, and does not report that it was gone.": {"BrokenUnlockSparesSuccessor", "StolenUnlockSparesThief"},
		}),
	},
}

// concurrencyDriver has a session for each lock, as the TTL is the session's.
func concurrencyDriver(client *clientv3.Client) driver.Driver {
	return peersuite.Driver("concurrency", func(ctx context.Context, key string, ttl time.Duration) (peersuite.Lock, error) {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(int((ttl+time.Second-1)/time.Second)))
		if err != nil {
			return peersuite.Lock{}, err
		}
		m := concurrency.NewMutex(s, key)
		if err := m.TryLock(ctx); err != nil {
			if errors.Is(err, concurrency.ErrLocked) {
				err = peersuite.ErrTaken
			}
			return peersuite.Lock{}, errors.Join(err, s.Close())
		}
		return peersuite.Lock{
			Renew: func(context.Context) error { return held(s) },
			Release: func(ctx context.Context) error {
				if err := held(s); err != nil {
					return err
				}
				return errors.Join(m.Unlock(ctx), s.Close())
			},
		}, nil
	}, func() error { return nil })
}

func held(s *concurrency.Session) error {
	select {
	case <-s.Done():
		return driver.ErrLost
	default:
		return nil
	}
}

// on makes a member for a library, which keeps the owners of a lock and its waiters under a name.
func on(name string, fencing bool, under func(key string) string, open func(*clientv3.Client) driver.Driver) conformance.HarnessMaker {
	return conformance.OfDriver(func(tb testing.TB) conformance.DriverHarness {
		tb.Helper()
		s, err := members.Take()
		if err != nil {
			tb.Fatalf("a member of etcd: %v", err)
		}
		tb.Cleanup(func() { members.Put(s, false) })
		h := &harness{tb: tb, member: s, claims: conformance.Capabilities{Name: name, Fencing: fencing, Fair: fencing}, under: under, open: open}
		h.admin = h.client()
		return h
	})
}

type harness struct {
	tb     testing.TB
	member *members.Server
	claims conformance.Capabilities
	under  func(key string) string
	open   func(*clientv3.Client) driver.Driver
	admin  *clientv3.Client
}

func (h *harness) client() *clientv3.Client {
	c, err := members.Dial(h.member)
	if err != nil {
		h.tb.Fatalf("a client of etcd: %v", err)
	}
	h.tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (h *harness) NewDriver() (driver.Driver, error) { return h.open(h.client()), nil }

func (h *harness) Capabilities() conformance.Capabilities { return h.claims }

// Timing: a lease lasts for whole seconds, and one more.
func (h *harness) Timing() conformance.Timing {
	return conformance.Timing{ShortTTL: 2 * time.Second, MinTTL: time.Second, Granularity: 2 * time.Second}
}

// Background: a client's connections have goroutines, and a session has one.
func (h *harness) Background(stack string) bool {
	return strings.Contains(stack, "google.golang.org/grpc") || strings.Contains(stack, "/client/v3")
}

// Break deletes the key of the owner, which came first.
func (h *harness) Break(ctx context.Context, key string) error {
	first, err := h.first(ctx, key)
	if err == nil && first != nil {
		_, err = h.admin.Delete(ctx, string(first.Key))
	}
	return err
}

func (h *harness) Expire(ctx context.Context, key string) error {
	first, err := h.first(ctx, key)
	if err == nil && first != nil {
		_, err = h.admin.Revoke(ctx, clientv3.LeaseID(first.Lease))
	}
	return err
}

// Steal deletes those that wait as well: a foreign owner would be the last of them.
func (h *harness) Steal(ctx context.Context, key string) error {
	lease, err := h.admin.Grant(ctx, 60)
	if err != nil {
		return err
	}
	if _, err := h.admin.Delete(ctx, h.under(key), clientv3.WithPrefix()); err != nil {
		return err
	}
	_, err = h.admin.Put(ctx, h.under(key)+"thief", "", clientv3.WithLease(lease.ID))
	return err
}

func (h *harness) Flush(ctx context.Context) error { return members.Empty(ctx, h.admin) }

func (h *harness) first(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	res, err := h.admin.Get(ctx, h.under(key), append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...)
	if err != nil || len(res.Kvs) == 0 {
		return nil, err
	}
	return res.Kvs[0], nil
}
