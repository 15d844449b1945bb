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
					got, err := b.measure(context.Background(), set, c, 50*time.Millisecond)
					if err != nil {
						t.Fatal(err)
					}
					if trouble := got.trouble(); trouble != "" {
						t.Error(trouble)
					}
					if got.sections() == 0 {
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
