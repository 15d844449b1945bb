// Package soaktest has the short soaks with which a strategy's tests show that its long soak works.
package soaktest

import (
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/soak"
)

// Sound soaks the strategy for some seconds, and wants no violation.
func Sound(t *testing.T, cfg soak.Config, s soak.Strategy) {
	t.Helper()
	cfg.Duration = 5 * time.Second
	report := run(t, cfg, s)
	if granted := report.Rows[0].Count[soak.Granted]; len(report.Violations) > 0 || granted == 0 || len(report.Faults) == 0 {
		t.Errorf("%d violations, %d grants, %d kinds of faults; want none, some and some", len(report.Violations), granted, len(report.Faults))
	}
}

// Finds soaks a strategy whose processes do not exclude each other, without faults, and wants overlaps.
func Finds(t *testing.T, cfg soak.Config, apart soak.Strategy) {
	t.Helper()
	cfg.Duration, cfg.Operations, cfg.Faults = 30*time.Second, 500, []string{}
	if run(t, cfg, apart).Found[soak.Overlap] == 0 {
		t.Error("no overlap was found")
	}
}

func run(t *testing.T, cfg soak.Config, s soak.Strategy) *soak.Report {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	cfg.Strategies = []soak.Strategy{s}
	cfg.Seed, cfg.Slack, cfg.Dir = 20260101, 5*time.Second, t.TempDir()
	cfg.Processes, cfg.Callers, cfg.Keys, cfg.Storm, cfg.Calm = 2, 4, 8, 3*time.Second, 2*time.Second
	report, err := soak.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	return report
}
