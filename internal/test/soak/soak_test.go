package soak_test

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
)

var strategies = []soak.Strategy{
	{Name: "setnx", On: []soak.Topology{soak.Single, soak.Cluster}, New: func(p soak.Process) (locker.Locker, error) {
		return setnx.New(p.Clients[0], p.Options...)
	}},
	{Name: "hashreentrant+acks", On: []soak.Topology{soak.Sentinel}, Acked: true, New: func(p soak.Process) (locker.Locker, error) {
		return hashreentrant.New(p.Clients[0], append(p.Options, hashreentrant.WithReplicaAcks(1, time.Second))...)
	}},
	{Name: "redlock", On: []soak.Topology{soak.Quorum}, New: func(p soak.Process) (locker.Locker, error) {
		return redlock.New(p.Clients, p.Options...)
	}},
}

func TestMain(m *testing.M) {
	soak.ServeWorker(append(strategies, plantedStrategies()...)...)
	os.Exit(m.Run())
}

func full() bool { return os.Getenv("LOCKER_CONFORMANCE") == "all" }

// TestSoak is a short soak of each topology: `make soak` is a long one.
func TestSoak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	cfg := soak.Config{
		Strategies: strategies, Duration: 5 * time.Second, Seed: 20260101, Slack: 5 * time.Second, Dir: t.TempDir(),
		Processes: 2, Callers: 6, Keys: 16, Storm: 3 * time.Second, Calm: 2 * time.Second,
	}
	if full() {
		cfg.Duration, cfg.Storm, cfg.Calm = 40*time.Second, 0, 0
	}
	report, err := soak.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	if len(report.Violations) > 0 {
		t.Error("violations were found")
	}
	for _, row := range report.Rows {
		if row.Count[soak.Granted] == 0 {
			t.Errorf("%s on %s: no grants", row.Strategy, row.Topology)
		}
	}
}

// TestRunEnds: a run ends when it has done enough, or is interrupted, and leaves no files.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operations int
		timeout    time.Duration
	}{
		"enough operations": {operations: 50},
		"interrupted":       {timeout: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.timeout, time.Minute))
			defer cancel()
			dir := t.TempDir()
			report, err := soak.Run(ctx, soak.Config{Strategies: strategies[:1], Topologies: []soak.Topology{soak.Single},
				Operations: c.operations, Duration: time.Minute, Faults: []string{}, Processes: 1, Dir: dir + "/logs"})
			if err != nil || len(report.Violations) > 0 || report.Operations() < c.operations {
				t.Errorf("Run: %v, %v", err, report)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]soak.Config{
		"no strategy runs":                {Strategies: strategies[:1], Topologies: []soak.Topology{soak.Quorum}},
		`no topology "ring"; there are: `: {Strategies: strategies, Topologies: []soak.Topology{"ring"}},
		`no fault "rain"; there are: `:    {Strategies: strategies, Faults: []string{"rain"}},
	} {
		report, err := soak.Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || report == nil {
			t.Errorf("Run: %v, want %q", err, want)
		}
	}
}
