package etcdlike_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	etcdlike "github.com/distlock/locker/examples/driver"
)

// TestMain has go test run more cases at a time: most of them wait most of the time.
func TestMain(m *testing.M) { conformance.Main(m, nil) }

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newHarness))
}

// harness is one store. It is an Inspector and a Breaker, too, for the cases that look
// into the store and break locks.
type harness struct{ store *etcdlike.Store }

func newHarness(testing.TB) conformance.DriverHarness { return harness{etcdlike.New()} }

func (h harness) NewDriver() (driver.Driver, error) { return etcdlike.NewDriver(h.store), nil }

func (harness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "etcdlike", Fencing: true}
}

// Timing is docs/driver.md's for a store that counts seconds.
func (harness) Timing() conformance.Timing {
	return conformance.Timing{ShortTTL: 2 * time.Second, MinTTL: time.Second, Granularity: time.Second}
}

// find returns a zero KV for a key that is free.
func (h harness) find(key string) (etcdlike.KV, time.Duration) {
	kvs, leases := h.store.Dump()
	for _, kv := range kvs {
		if kv.Key == key {
			return kv, time.Until(leases[kv.Lease])
		}
	}
	return etcdlike.KV{}, 0
}

// Keys lists leases, too, so that one left behind without a key is seen.
func (h harness) Keys(context.Context) (keys []conformance.StoredKey, err error) {
	kvs, leases := h.store.Dump()
	for _, kv := range kvs {
		keys = append(keys, conformance.StoredKey{Name: kv.Key, TTL: time.Until(leases[kv.Lease])})
	}
	for id, end := range leases {
		keys = append(keys, conformance.StoredKey{Name: fmt.Sprint("lease ", id), TTL: time.Until(end)})
	}
	return keys, nil
}

func (h harness) Holder(_ context.Context, key string) (string, error) {
	kv, _ := h.find(key)
	return kv.Value, nil
}

func (h harness) TTL(_ context.Context, key string) (time.Duration, error) {
	_, left := h.find(key)
	return left, nil
}

func (h harness) Break(ctx context.Context, key string) error {
	_, err := h.store.Txn(ctx, nil, []etcdlike.Op{etcdlike.Delete(key)}, nil)
	return err
}

func (h harness) Expire(ctx context.Context, key string) error {
	kv, _ := h.find(key)
	return h.store.Revoke(ctx, kv.Lease)
}

func (h harness) Steal(ctx context.Context, key string) error {
	lease, err := h.store.Grant(ctx, 60)
	if err != nil {
		return err
	}
	_, err = h.store.Txn(ctx, nil, []etcdlike.Op{etcdlike.Put(key, "thief", lease)}, nil)
	return err
}

// Flush ends all leases, and all keys with them. Revisions go on, as etcd's do.
func (h harness) Flush(ctx context.Context) error {
	_, leases := h.store.Dump()
	for id := range leases {
		_ = h.store.Revoke(ctx, id) // or it has just ended
	}
	return nil
}

func Example() {
	ctx := context.Background()
	l, err := locker.New(etcdlike.NewDriver(etcdlike.New()))
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	lease, err := l.Lock(ctx, "orders/42", locker.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	_, err = l.TryLock(ctx, "orders/42")
	fmt.Println("taken:", errors.Is(err, locker.ErrNotAcquired))
	fmt.Println("unlocked:", lease.Unlock(ctx))
	// Output:
	// taken: true
	// unlocked: <nil>
}
