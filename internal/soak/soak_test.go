package soak_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/soak"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
)

var strategies = []soak.Strategy{
	{Name: "setnx", New: func(p soak.Process) (locker.Locker, error) { return setnx.New(p.Clients[0], p.Options...) }},
	{Name: "hashreentrant", StoredHolds: true, Notified: true, New: func(p soak.Process) (locker.Locker, error) {
		return hashreentrant.New(p.Clients[0], p.Options...)
	}},
	{Name: "blpop", StoredHolds: true, Notified: true, Fair: true, New: func(p soak.Process) (locker.Locker, error) {
		return blpop.New(p.Clients[0], p.Options...)
	}},
	{Name: "redlock", Nodes: 5, Notified: true, New: func(p soak.Process) (locker.Locker, error) { return redlock.New(p.Clients, p.Options...) }},
}

func TestMain(m *testing.M) {
	soak.ServeWorker(append(strategies, plantedStrategies()...)...)
	os.Exit(m.Run())
}

// TestSoak is a short soak of all strategies: `make soak` is a long one.
func TestSoak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a quarter of a minute")
	}
	report, err := soak.Run(t.Context(), soak.Config{
		Strategies: strategies,
		Duration:   7 * time.Second,
		Seed:       20260101,
		Processes:  2,
		Callers:    6,
		Keys:       16,
		Storm:      3 * time.Second,
		Calm:       2 * time.Second,
		Slack:      5 * time.Second,
		Dir:        t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	if len(report.Violations) > 0 {
		t.Error("violations were found")
	}
	for _, s := range report.Stats {
		if s.Granted == 0 || s.Windows == 0 {
			t.Errorf("%s: %d grants, %d windows; want some of both", s.Strategy, s.Granted, s.Windows)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  soak.Config
		want string
	}{
		"no strategies":  {soak.Config{}, "no strategies"},
		"no constructor": {soak.Config{Strategies: []soak.Strategy{{Name: "x"}}}, `"x" lacks`},
		"no such fault":  {soak.Config{Strategies: strategies, Faults: []string{"rain"}}, `no fault "rain"; there are: freeze,`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := soak.Run(context.Background(), c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || report == nil {
				t.Errorf("Run: %v, want %q", err, c.want)
			}
		})
	}
}
