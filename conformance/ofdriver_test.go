package conformance_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
)

// modest claims nothing that its driver can do.
type modest struct{ memoryHarness }

func newModest(tb testing.TB) conformance.DriverHarness {
	tb.Helper()
	return modest{newMemoryHarness(tb).(memoryHarness)}
}

func (modest) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "modest", Fencing: true}
}

// TestShownClaims: what the driver is, every Locker uses, and the cases for it run.
func TestShownClaims(t *testing.T) {
	t.Parallel()
	c := conformance.OfDriver(newModest)(t).Capabilities()
	for claim, made := range map[string]bool{"Notified": c.Notified, "Admin": c.Admin, "Signals": c.Signals, "Sticky": c.Sticky, "LossDetection": c.LossDetection, "Permits": c.Permits} {
		require.True(t, made, claim)
	}
	require.False(t, c.StoredHolds || c.Fair || c.Quorum || c.Scripts, "the driver shows no such thing: %+v", c)
	report, err := conformance.Check(t.Context(), conformance.OfDriver(newModest), nil, conformance.WithOnly("^commands/WatchersOverlap$"))
	require.NoError(t, err)
	require.Equal(t, 1, outcomes(report)[conformance.Passed], report)
}

// plain hides what its driver is besides.
type plain struct{ modest }

func (h plain) NewDriver() (driver.Driver, error) {
	d, err := h.modest.NewDriver()
	return struct{ driver.Driver }{d}, err
}

// TestHiddenInterfaces: a driver without the interface is tested for less.
func TestHiddenInterfaces(t *testing.T) {
	t.Parallel()
	c := conformance.OfDriver(func(tb testing.TB) conformance.DriverHarness {
		tb.Helper()
		return plain{newModest(tb).(modest)}
	})(t).Capabilities()
	require.False(t, c.Notified || c.Admin || c.Signals || c.Sticky || c.LossDetection || c.Permits, "%+v", c)
}

// scripting claims Scripts.
type scripting struct{ memoryHarness }

func (scripting) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: "scripting", Scripts: true}
}

// TestScriptsOfADriver: Scripts is a claim where the harness itself causes the faults.
func TestScriptsOfADriver(t *testing.T) {
	t.Parallel()
	newScripting := func(tb testing.TB) scripting {
		tb.Helper()
		return scripting{newMemoryHarness(tb).(memoryHarness)}
	}
	for _, c := range []struct {
		newHarness func(tb testing.TB) conformance.DriverHarness
		want       bool
	}{
		{func(tb testing.TB) conformance.DriverHarness { return newScripting(tb) }, false},
		{func(tb testing.TB) conformance.DriverHarness {
			return struct {
				scripting
				*conformance.Injector
			}{newScripting(tb), new(conformance.Injector)}
		}, true},
	} {
		require.Equal(t, c.want, conformance.OfDriver(c.newHarness)(t).Capabilities().Scripts)
	}
}

// recovering counts how often its servers are recovered.
type recovering struct {
	memoryHarness
	recovered *atomic.Int32
}

func (recovering) Persist() error        { return nil }
func (recovering) Crash() error          { return nil }
func (recovering) CutConnections() error { return nil }
func (recovering) Cause(string) error    { return nil }

func (h recovering) Recover() error {
	h.recovered.Add(1)
	return nil
}

// TestSharedServersAreNotRecovered: Recover may restart servers, which are others' at the same time.
func TestSharedServersAreNotRecovered(t *testing.T) {
	t.Parallel()
	var recovered atomic.Int32
	h := conformance.OfDriver(func(tb testing.TB) conformance.DriverHarness {
		tb.Helper()
		return recovering{newMemoryHarness(tb).(memoryHarness), &recovered}
	})(t)
	for _, c := range []struct {
		conformance.Case
		want int32
	}{
		{conformance.Case{Name: "Shared"}, 0},
		{conformance.Case{Name: "Isolated", Isolated: true}, 1},
		{conformance.Case{Name: "Serial", Serial: true}, 2},
	} {
		c.Group, c.Test = "test", func(t *conformance.T) { t.Lock(t.Locker(), t.Key("k")) }
		r := suite.NewRecorder(t.Context(), c.Name)
		c.Run(r, h)
		require.False(t, r.Failed(), r.Said())
		require.Equal(t, c.want, recovered.Load(), c.Name)
	}
}
