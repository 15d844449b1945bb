package simulation

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Uint64("seeds", 200, "how many histories to play, from the seed 1 on")
	seed  = flag.Uint64("seed", 0, "play this history alone, several times, and show it if it fails")
)

// TestSimulation plays histories. A failing one names its seed.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		again(t, *seed)
		return
	}
	var sum Result
	for n := uint64(1); n <= *seeds && !t.Failed(); n++ {
		play(t, n, func(r *Result) {
			sum.Operations, sum.Granted, sum.Lost, sum.Faults = sum.Operations+r.Operations, sum.Granted+r.Granted, sum.Lost+r.Lost, sum.Faults+r.Faults
			sum.Kept += r.Kept
			if len(r.Violations) > 0 {
				t.Errorf("%s\n\n%s\nagain: make simulate SEED=%d", r.History(), strings.Join(r.Violations, "\n"), n)
			}
		})
	}
	t.Logf("%d histories: %d calls, %d grants, %d of them of kept locks, %d losses, %d faults", *seeds, sum.Operations, sum.Granted, sum.Kept, sum.Lost, sum.Faults)
	if sum.Kept == 0 && *seeds >= 100 {
		t.Error("no lock was kept")
	}
}

// play plays one history as a test of its own, so that a panic, too, is told with the seed.
func play(t *testing.T, n uint64, then func(*Result)) {
	t.Helper()
	t.Run(fmt.Sprint("seed=", n), func(t *testing.T) {
		var r *Result
		synctest.Test(t, func(*testing.T) { r = Play(n) })
		if len(r.Violations) > 0 {
			t.Errorf("%s", r.Title)
		}
		then(r)
	})
}

// again plays one history many times: what it does at one instant differs from time to time.
func again(t *testing.T, n uint64) {
	t.Helper()
	const times = 300
	failed := 0
	for range times {
		play(t, n, func(r *Result) {
			if len(r.Violations) == 0 {
				return
			}
			if failed++; failed == 1 {
				t.Errorf("%s\n\n%s", r.History(), strings.Join(r.Violations, "\n"))
			}
		})
	}
	t.Logf("seed %d: %d of %d times a promise was broken", n, failed, times)
}
