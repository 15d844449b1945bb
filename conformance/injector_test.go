package conformance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
)

// scripted is a driver that counts what reaches it, and renews as renew says.
type scripted struct {
	acquired, released int
	renew              func(answer func(int, error))
}

func (*scripted) Name() string { return "scripted" }
func (*scripted) Close() error { return nil }

func (d *scripted) Acquire(context.Context, driver.Request) (driver.Answer, error) {
	d.acquired++
	return driver.Answer{Granted: true, Token: int64(d.acquired)}, nil
}

func (d *scripted) Renew(_ context.Context, _ []driver.Claim, answer func(int, error)) {
	d.renew(answer)
}

func (d *scripted) Release(context.Context, driver.Claim) error {
	d.released++
	return driver.ErrLost
}

// renewed are the answers to a renewal of three claims.
func renewed(d driver.Driver) map[int]error {
	answers := map[int]error{}
	d.Renew(context.Background(), make([]driver.Claim, 3), func(i int, err error) { answers[i] = err })
	return answers
}

// A claim for which a driver gives no answer has none behind an Injector either.
func TestInjectorInventsNoAnswers(t *testing.T) {
	t.Parallel()
	var in conformance.Injector
	d := in.Wrap(&scripted{renew: func(answer func(int, error)) { answer(2, driver.ErrLost) }})
	want := map[int]error{2: driver.ErrLost}
	require.Equal(t, want, renewed(d))
	require.NoError(t, in.Repeat(conformance.OpRenew))
	require.Equal(t, want, renewed(d), "with a command that arrives twice")
	require.NoError(t, in.LoseReply(conformance.OpRenew))
	require.Len(t, renewed(d), 3, "with no reply, there is an error for each")
}

// Answers that come early are passed on before those that come late.
func TestInjectorHoldsNoAnswersBack(t *testing.T) {
	t.Parallel()
	var in conformance.Injector
	told := 0
	d := in.Wrap(&scripted{renew: func(answer func(int, error)) {
		for i := range 3 {
			answer(i, nil)
			require.Equal(t, i+1, told)
		}
	}})
	d.Renew(t.Context(), make([]driver.Claim, 3), func(int, error) { told++ })
	require.Equal(t, 3, told)
}

func TestInjectorFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arm     func(*conformance.Injector) error
		arrived int
		granted bool
		took    time.Duration
	}{
		"none":           {func(*conformance.Injector) error { return nil }, 1, true, 0},
		"another's":      {func(in *conformance.Injector) error { return in.LoseCommand(conformance.OpRelease) }, 1, true, 0},
		"a lost command": {func(in *conformance.Injector) error { return in.LoseCommand(conformance.OpAcquire) }, 0, false, 0},
		"a lost reply":   {func(in *conformance.Injector) error { return in.LoseReply(conformance.OpAcquire) }, 1, false, 0},
		"twice":          {func(in *conformance.Injector) error { return in.Repeat(conformance.OpAcquire) }, 2, true, 0},
		"a late reply":   {func(in *conformance.Injector) error { return in.DelayReply(conformance.OpAcquire, 2*time.Second) }, 1, true, 2 * time.Second},
		"too late":       {func(in *conformance.Injector) error { return in.DelayReply(conformance.OpAcquire, time.Hour) }, 1, false, time.Minute},
		"refused":        {(*conformance.Injector).Refuse, 0, false, 0},
		"silent":         {(*conformance.Injector).BlackHole, 0, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var in conformance.Injector
				inner := &scripted{}
				d := in.Wrap(inner)
				require.NoError(t, c.arm(&in))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				a, err := d.Acquire(ctx, driver.Request{})
				require.Equal(t, c.took, time.Since(start))
				require.Equal(t, c.arrived, inner.acquired)
				require.Equal(t, c.granted, err == nil && a.Granted, "%+v, %v", a, err)
				require.Equal(t, c.granted, a != driver.Answer{}, "nothing of an answer beside an error")

				require.NoError(t, in.Heal())
				a, err = d.Acquire(t.Context(), driver.Request{})
				require.NoError(t, err)
				require.True(t, a.Granted, "what happens to one command happens to no other")
			})
		})
	}
}

// The store tells a command that is not sent from one that may have arrived.
func TestInjectorSaysWhatMayHaveArrived(t *testing.T) {
	t.Parallel()
	var in conformance.Injector
	d := in.Wrap(&scripted{})
	var refined *driver.StoreError
	require.NoError(t, in.Refuse())
	require.ErrorAs(t, d.Release(t.Context(), driver.Claim{}), &refined)
	require.True(t, refined.NotApplied)
	require.NoError(t, in.Heal())
	require.NoError(t, in.LoseCommand(conformance.OpRelease))
	require.NotErrorAs(t, d.Release(t.Context(), driver.Claim{}), &refined)
	require.ErrorIs(t, d.Release(t.Context(), driver.Claim{}), driver.ErrLost)
}

type setsHolds struct{}

func (setsHolds) SetHolds(context.Context, driver.Claim, int) error { return nil }

type watches struct{}

func (watches) Watch(context.Context, string) (driver.Watch, error) { return nil, errors.New("none") }

// A driver behind an Injector can do what it can do without, and no more.
func TestInjectorKeepsInterfaces(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	for _, d := range []driver.Driver{s, struct {
		*scripted
		setsHolds
	}{scripted: s}, struct {
		*scripted
		watches
	}{scripted: s}, struct {
		*scripted
		setsHolds
		watches
	}{scripted: s}} {
		var in conformance.Injector
		w := in.Wrap(d)
		_, counts := d.(driver.HoldCounter)
		_, notifies := d.(driver.Notifier)
		_, countsStill := w.(driver.HoldCounter)
		_, notifiesStill := w.(driver.Notifier)
		require.Equal(t, counts, countsStill, "%T", d)
		require.Equal(t, notifies, notifiesStill, "%T", d)
		require.Empty(t, w.(driver.Sharder).Shard("k"))
	}
}

// Options for a driver that takes none are refused, as they are without an Injector.
func TestInjectorRefusesOptions(t *testing.T) {
	t.Parallel()
	var in conformance.Injector
	_, err := locker.New(in.Wrap(&scripted{}), locker.WithDriverOption(1))
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "scripted")
}

// A driver that does not answer exactly once, and in time, fails the case that has it, with a
// message that says so.
func TestInjectorWantsOneAnswer(t *testing.T) {
	t.Parallel()
	var late func(int, error)
	for name, c := range map[string]struct {
		renew func(answer func(int, error))
		says  string
	}{
		"twice":    {func(answer func(int, error)) { answer(0, nil); answer(0, driver.ErrLost) }, "answer(0, ...) twice"},
		"late":     {func(answer func(int, error)) { late = answer }, "answer(0, ...) after it had returned"},
		"never":    {func(func(int, error)) {}, "without an answer for claim 0 of 1"},
		"no claim": {func(answer func(int, error)) { answer(0, nil); answer(1, nil) }, "given 1 claims, called answer for the index 1"},
	} {
		r := suite.NewRecorder(t.Context(), name)
		answers := 0
		conformance.Case{Name: "Renews", Group: "test", Rules: []string{"R11"}, Contract: "one answer", Test: func(ct *conformance.T) {
			h := ct.Harness().(interface {
				Wrap(driver.Driver) driver.Driver
			})
			d := h.Wrap(&scripted{renew: c.renew})
			d.Renew(ct.Context(), make([]driver.Claim, 1), func(int, error) { answers++ })
			if name == "late" {
				late(0, nil)
			}
		}}.Run(r, conformance.OfDriver(newMemoryHarness)(t))
		require.True(t, r.Failed(), name)
		require.Contains(t, r.Said(), c.says, name)
		require.LessOrEqual(t, answers, 1, "%s: what comes late or again is not passed on", name)
	}
}
