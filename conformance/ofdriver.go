package conformance

import (
	"reflect"
	"sync"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/uuid"
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
	// Capabilities are the driver's name, and the claims that do not show: Fencing, Fair, Quorum, and Scripts
	// if the harness is a [Faults]. The other fields are filled in.
	Capabilities() Capabilities
}

// OfDriver makes a [HarnessMaker] of newHarness, which makes harnesses for drivers. newHarness
// gives each a store of its own, and closes what it opens by tb.Cleanup.
//
// A driver that is a [driver.Notifier], [driver.HoldCounter], [driver.PermitKeeper], [driver.Inspector],
// [driver.Signaller] or [driver.LossDetector] is used as one by every Locker, so this is a claim. To test a driver for less,
// have NewDriver return it in a struct without the interface, or name the cases in [WithSkip].
func OfDriver(newHarness func(tb testing.TB) DriverHarness) HarnessMaker {
	var mu sync.Mutex
	var shown *Capabilities // by the driver of the first harness
	return func(tb testing.TB) Harness {
		tb.Helper()
		h := &ofDriver{DriverHarness: newHarness(tb)}
		mu.Lock()
		defer mu.Unlock()
		if shown == nil {
			c, err := shownBy(h.DriverHarness)
			if err != nil {
				tb.Fatalf("making a driver: %v", err)
			}
			shown = &c
		}
		h.shown = *shown
		return h
	}
}

// shownBy returns the claims that show in the interfaces and the settings of a driver.
func shownBy(h DriverHarness) (c Capabilities, err error) {
	d, err := h.NewDriver()
	if err != nil {
		return c, err
	}
	s, err := configured(d, func() string { return uuid.New(4) + ":1" })
	if err != nil {
		_ = d.Close()
		return c, err
	}
	_, c.Notified = d.(driver.Notifier)
	_, c.StoredHolds = d.(driver.HoldCounter)
	_, c.Permits = d.(driver.PermitKeeper)
	_, c.Admin = d.(driver.Inspector)
	_, c.LossDetection = d.(driver.LossDetector)
	_, c.Signals = d.(driver.Signaller)
	c.Signals = c.Signals && c.Admin
	c.Sticky = c.Signals && s.NamesHolders
	return c, d.Close()
}

type ofDriver struct {
	DriverHarness
	Injector
	shown Capabilities
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
	c := h.DriverHarness.Capabilities()
	// An Injector has no cache of scripts.
	_, faults := h.DriverHarness.(Faults)
	scripts := c.Scripts && faults
	c = c.upgraded(h)
	c.Scripts = scripts
	for field := range claims(h.shown) {
		reflect.ValueOf(&c).Elem().FieldByName(field).SetBool(true)
	}
	return c
}
