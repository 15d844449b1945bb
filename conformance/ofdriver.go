package conformance

import (
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// DriverHarness makes drivers on one store. The author of a driver implements it. Its
// methods are called from many goroutines. A harness that is also an [Inspector], [Breaker], [Planter],
// [Wired], [ServerFaults] or [ChildMaker] gets the cases that need one. The table shows which cases each
// missing interface would add. Faults come from an [Injector] around the drivers, unless the harness is a [Faults].
//
// A method Timing, as [Harness] has it, sets other bounds than the defaults. A method
// Background(stack string) bool reports whether a goroutine is the harness's own, such as one of a client
// that it gave the drivers. stack is the output of runtime.Stack for it. Cases that count
// goroutines leave these out.
type DriverHarness interface {
	// NewDriver makes a driver as a separate process would have it: identity and
	// connections of its own, over the harness's one store. The suite closes it.
	NewDriver() (driver.Driver, error)
	// Capabilities are the driver's name and claims: Name to Permits. The fields after them are filled in.
	Capabilities() Capabilities
}

// OfDriver makes harnesses of those for drivers. newHarness gives each a store of its own,
// and closes what it opens by tb.Cleanup.
func OfDriver(newHarness func(tb testing.TB) DriverHarness) HarnessMaker {
	return func(tb testing.TB) Harness { return &ofDriver{DriverHarness: newHarness(tb)} }
}

type ofDriver struct {
	DriverHarness
	Injector
}

func (h *ofDriver) New(opts ...locker.Option) (locker.Locker, error) {
	d, err := h.NewDriver()
	if err != nil {
		return nil, err
	}
	return locker.New(h.Wrap(d), opts...)
}

func (h *ofDriver) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := h.New(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func (h *ofDriver) Timing() Timing {
	if timed, ok := h.DriverHarness.(interface{ Timing() Timing }); ok {
		return timed.Timing()
	}
	return Timing{}
}

func (h *ofDriver) Capabilities() Capabilities {
	c := h.DriverHarness.Capabilities().upgraded(h)
	c.Scripts = false
	return c
}
