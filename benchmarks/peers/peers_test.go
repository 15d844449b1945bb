package main

import (
	"context"
	"math"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(isChild) != "" {
		serveParent()
		return
	}
	os.Exit(m.Run())
}

// Every contender is measured for some milliseconds in every setup: each figure is there
// and plausible, no call fails and no two sections overlap.
func TestScenarios(t *testing.T) {
	b := &bench{stage: &stage{}}
	t.Cleanup(b.stage.end)
	for _, s := range scenarios {
		for _, set := range s.setups {
			for _, c := range s.who {
				t.Run(s.name+set.label+"/"+c, func(t *testing.T) {
					got, err := b.measure(context.Background(), small(set), c, 50*time.Millisecond+10*set.rtt)
					if err != nil {
						t.Fatal(err)
					}
					if trouble := got.trouble(); trouble != "" {
						t.Error(trouble)
					}
					if endless := set.job.Hold > time.Minute; got.sections() == 0 && set.job.Workers > 0 && !endless {
						t.Error("no section in all the time")
					}
					for _, m := range s.metrics {
						if v := m.of(&got); math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
							t.Errorf("%s is %v", m.name, v)
						}
					}
				})
			}
		}
	}
}

// small is a setup with fewer of everything.
func small(s setup) setup {
	s.least, s.settle = 0, 10*time.Millisecond
	s.job.Workers, s.job.Keys = min(s.job.Workers, 20), min(s.job.Keys, 20)
	s.job.Clients, s.job.Held = min(s.job.Clients, 20), min(s.job.Held, 50)
	return s
}
