package conformance_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/conformance"
)

func outcomes(r conformance.Report) map[conformance.Outcome]int {
	n := map[conformance.Outcome]int{}
	for _, res := range r.Results {
		n[res.Outcome]++
	}
	return n
}

// A program can have what Run does under go test.
func TestCheck(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []conformance.Result
	report, err := conformance.Check(t.Context(), conformance.OfDriver(newMemoryHarness), func(r conformance.Result) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r)
	}, conformance.WithOnly("^(exclusion|fencing)/"), conformance.WithoutSlow())
	require.NoError(t, err)
	require.Equal(t, "memory", report.Strategy)
	require.False(t, report.Failed(), report)
	passed := outcomes(report)[conformance.Passed]
	require.Greater(t, passed, 20)
	require.Len(t, seen, passed, "progress of each case that ran")
	for _, r := range seen {
		require.NotZero(t, r.Took, r.Name)
		require.NotEmpty(t, r.Contract, r.Name)
		require.NotEmpty(t, r.Rules, r.Name)
	}
	require.Contains(t, report.String(), "for strategies without Fencing, which is claimed: fencing/ZeroWithoutSupport")
}

// A failure says why, in the words of the case.
func TestCheckSaysWhy(t *testing.T) {
	t.Parallel()
	f := broken["grants a held key now and then"].fake
	f.timing = selfTiming
	report, err := conformance.Check(t.Context(), f.harness, nil, conformance.WithOnly("^exclusion/(CounterExact|NeverTwoInside)$"))
	require.NoError(t, err)
	require.True(t, report.Failed())
	for _, r := range report.Results {
		require.Equal(t, r.Outcome == conformance.Passed || r.Outcome == conformance.NotRun, r.Why == "", "%s: %q", r.Name, r.Why)
	}
	require.Contains(t, report.String(), "failed: exclusion/")
}

func TestCheckWithoutAHarness(t *testing.T) {
	t.Parallel()
	for what, newHarness := range map[string]conformance.HarnessMaker{
		"no server":     func(tb testing.TB) conformance.Harness { tb.Fatal("no server"); return nil },
		"panic: broken": func(testing.TB) conformance.Harness { panic("broken") },
	} {
		_, err := conformance.Check(t.Context(), newHarness, nil)
		require.ErrorContains(t, err, what)
	}
	_, err := conformance.Check(t.Context(), conformance.OfDriver(newMemoryHarness), nil, conformance.WithOnly("nothing"))
	require.ErrorContains(t, err, "WithOnly")
}

// Once the context has ended no case begins, and what the harness opened is closed.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	opened, closed := 0, 0
	var mu sync.Mutex
	count := func(n *int) {
		mu.Lock()
		defer mu.Unlock()
		*n++
	}
	report, err := conformance.Check(ctx, func(tb testing.TB) conformance.Harness {
		count(&opened)
		tb.Cleanup(func() { count(&closed) })
		return conformance.OfDriver(newMemoryHarness)(tb)
	}, func(conformance.Result) { cancel() }, conformance.WithParallel(1), conformance.WithOnly("^(lease|hygiene)/"))
	require.NoError(t, err)
	n := outcomes(report)
	require.Equal(t, 1, n[conformance.Passed]+n[conformance.Failed], report)
	require.Greater(t, n[conformance.NotRun], 10)
	require.Equal(t, opened, closed)
	require.Contains(t, report.String(), "not run")
}

// A run's seed can be given again.
func TestSeed(t *testing.T) {
	seeded := func(seed string) (conformance.Report, error) {
		t.Setenv("LOCKER_CONFORMANCE_SEED", seed)
		return conformance.Check(t.Context(), conformance.OfDriver(newMemoryHarness), nil, conformance.WithOnly("/AcquireRelease$"))
	}
	report, err := seeded("42")
	require.NoError(t, err)
	require.EqualValues(t, 42, report.Seed)
	_, err = seeded("the first")
	require.ErrorContains(t, err, "want a number in LOCKER_CONFORMANCE_SEED")
}
