package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/memory"
)

// memoryHarness is what an adopter writes: see the package documentation.
type memoryHarness struct{ store *memory.Store }

func newMemoryHarness(testing.TB) conformance.DriverHarness {
	return memoryHarness{memory.NewStore()}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.OfDriver(newMemoryHarness), conformance.WithLockerCases())
}

func (h memoryHarness) NewDriver() (driver.Driver, error) { return h.store.Driver(), nil }

func (memoryHarness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "memory", Fencing: true, Notified: true, Admin: true, Signals: true, Sticky: true, LossDetection: true, Permits: true}
}

// The rest implements [conformance.Inspector] and [conformance.Breaker].

func (h memoryHarness) Keys(context.Context) ([]conformance.StoredKey, error) {
	var keys []conformance.StoredKey
	for _, k := range h.store.Keys() {
		_, left, _ := h.store.Holder(k)
		keys = append(keys, conformance.StoredKey{Name: k, TTL: left})
	}
	return keys, nil
}

func (h memoryHarness) Holder(_ context.Context, key string) (string, error) {
	owner, _, _ := h.store.Holder(key)
	return owner, nil
}

func (h memoryHarness) TTL(_ context.Context, key string) (time.Duration, error) {
	_, left, _ := h.store.Holder(key)
	return left, nil
}

func (h memoryHarness) Break(_ context.Context, key string) error {
	h.store.Break(key)
	return nil
}

func (h memoryHarness) Expire(ctx context.Context, key string) error { return h.Break(ctx, key) }

func (h memoryHarness) Steal(ctx context.Context, key string) error {
	h.store.Break(key)
	thief := driver.Claim{Key: key, ID: "thief", Owner: "thief", TTL: time.Minute}
	_, err := h.store.Driver().Acquire(ctx, driver.Request{Claim: thief})
	return err
}

func (h memoryHarness) Flush(context.Context) error {
	h.store.Flush()
	return nil
}
