package redlock_test

import (
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/redlock"
)

// Trouble with a minority of the servers, and with all of them. The latter, and slow
// cases, run under `make conformance` and `make faults`.
func TestConformanceServerFaults(t *testing.T) {
	q := redisconformance.Quorum{Name: "redlock under server faults", New: redlock.New, Timing: timing}
	only := `^minority/`
	if everything {
		only = `^(minority|faults|topology)/`
	}
	conformance.Run(t, q.Harness, conformance.WithCases(q.Cases()...), conformance.WithOnly(only))
}
