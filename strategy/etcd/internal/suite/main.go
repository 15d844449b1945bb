//go:build unix

// Command suite runs cases of the conformance suite on strategy etcd and on etcd's own package concurrency, behind a
// thin driver, and writes what happened into docs/peers-suite.md. It is to be run in this module, whose internal/member
// it compiles.
//
//	go run ./internal/suite -only concurrency
package main

import (
	"context"
	"errors"
	"os"
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
			"`Unlock` deletes its own key and spares the next holder. It returns no error if its key was gone, and the case wants one.": {"BrokenUnlockSparesSuccessor", "StolenUnlockSparesThief"},
		}),
	},
}

// concurrencyDriver has a session for each lock, as the TTL is the session's.
func concurrencyDriver(client *clientv3.Client) driver.Driver {
	return peersuite.Driver("concurrency", func(ctx context.Context, c driver.Claim) (peersuite.Lock, error) {
		ttl := int((c.TTL + time.Second - 1) / time.Second)
		lease, err := client.Grant(ctx, int64(ttl)) // a session that makes its lease does not look at ctx
		if err != nil {
			return peersuite.Lock{}, err
		}
		s, err := concurrency.NewSession(client, concurrency.WithTTL(ttl), concurrency.WithLease(lease.ID))
		if err != nil {
			return peersuite.Lock{}, err
		}
		m := concurrency.NewMutex(s, c.Key)
		if err := m.TryLock(ctx); err != nil {
			_ = s.Close() // the lease ends by itself if it fails
			if errors.Is(err, concurrency.ErrLocked) {
				err = peersuite.ErrTaken
			}
			return peersuite.Lock{}, err
		}
		owner := m.IsOwner() // before Unlock changes the mutex
		return peersuite.Lock{
			Renew:   func(ctx context.Context) error { return stillOwner(ctx, client, s, owner) },
			Release: func(ctx context.Context) error { return release(ctx, s, m) },
		}, nil
	}, func() error { return nil })
}

func stillOwner(ctx context.Context, client *clientv3.Client, s *concurrency.Session, owner clientv3.Cmp) error {
	if err := held(s); err != nil {
		return err
	}
	res, err := client.Txn(ctx).If(owner).Commit()
	if err == nil && !res.Succeeded {
		err = driver.ErrLost
	}
	return err
}

func release(ctx context.Context, s *concurrency.Session, m *concurrency.Mutex) error {
	if err := held(s); err != nil {
		return err
	}
	if err := m.Unlock(ctx); err != nil {
		return err // the Locker calls again
	}
	_ = s.Close() // the lease ends by itself if it fails
	return nil
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

// Break deletes the key of the owner.
func (h *harness) Break(ctx context.Context, key string) error {
	all, err := h.line(ctx, key)
	if err == nil && len(all) > 0 {
		_, err = h.admin.Delete(ctx, string(all[0].Key))
	}
	return err
}

func (h *harness) Expire(ctx context.Context, key string) error {
	all, err := h.line(ctx, key)
	if err == nil && len(all) > 0 {
		_, err = h.admin.Revoke(ctx, clientv3.LeaseID(all[0].Lease))
	}
	return err
}

// Steal deletes the waiters, too: a foreign owner would be the last of them.
func (h *harness) Steal(ctx context.Context, key string) error {
	lease, err := h.admin.Grant(ctx, 60)
	if err != nil {
		return err
	}
	all, err := h.line(ctx, key)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(h.under(key)+"thief", "", clientv3.WithLease(lease.ID))}
	for _, kv := range all {
		ops = append(ops, clientv3.OpDelete(string(kv.Key)))
	}
	_, err = h.admin.Txn(ctx).Then(ops...).Commit()
	return err
}

func (h *harness) Flush(ctx context.Context) error { return members.Empty(ctx, h.admin) }

// line returns the owner of a lock and the waiters, the owner first.
func (h *harness) line(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	res, err := h.admin.Get(ctx, h.under(key), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	return res.Kvs, nil
}
