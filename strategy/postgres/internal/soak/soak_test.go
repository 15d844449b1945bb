package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
)

// apart is a locker with a bug: each process has a table of its own.
var apart = soak.Strategy{Name: "apart", On: []soak.Topology{topology}, New: func(p soak.Process) (locker.Locker, error) {
	return open(p, fmt.Sprint("&table=process", p.Index))
}}

func TestMain(m *testing.M) {
	soak.ServeWorker(append(strategies, apart)...)
	os.Exit(m.Run())
}

func run(t *testing.T, s soak.Strategy, length time.Duration, operations int, faults []string) *soak.Report {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	cfg := config()
	cfg.Strategies, cfg.Faults = []soak.Strategy{s}, faults
	cfg.Duration, cfg.Operations = length, operations
	cfg.Seed, cfg.Slack, cfg.Dir = 20260101, 5*time.Second, t.TempDir()
	cfg.Processes, cfg.Callers, cfg.Keys, cfg.Storm, cfg.Calm = 2, 4, 8, 3*time.Second, 2*time.Second
	report, err := soak.Run(t.Context(), cfg)
	require.NoError(t, err)
	t.Log(report)
	return report
}

// TestSoak is a short soak: `make soak-postgres` is a long one.
func TestSoak(t *testing.T) {
	t.Parallel()
	report := run(t, strategies[0], 5*time.Second, 0, nil)
	require.Empty(t, report.Violations)
	require.Positive(t, report.Rows[0].Count[soak.Granted])
	require.NotEmpty(t, report.Faults)
}

// TestSoakFinds: two processes that do not exclude one another are found.
func TestSoakFinds(t *testing.T) {
	t.Parallel()
	report := run(t, apart, 30*time.Second, 500, []string{})
	require.Positive(t, report.Found[soak.Overlap])
}
