package compare

import (
	"math"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
)

// sample is a Result as a run makes it, of figures that are made up.
func sample(t *testing.T) *Result {
	t.Helper()
	r := &Result{Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), TookS: 68, Machine: "a machine", Server: "a server"}
	for i, name := range Names() {
		s := &Strategy{Name: name}
		var report conformance.Report
		for _, c := range conformance.Cases() {
			res := conformance.Result{Group: c.Group, Name: c.Name, Contract: c.Contract, Outcome: conformance.Passed}
			switch {
			case c.Locker, name != "blpop" && c.Name == "FIFOAcrossLockers", name == "setnx" && c.Name == "NotifiedWake":
				res.Outcome = conformance.Skipped
			}
			report.Results = append(report.Results, res)
		}
		s.Suite = suiteOf(report)
		k := float64(i + 1)
		commands := 2 * k
		s.Bench = &Bench{Solo: Pairs{12_000 / k, 60 * k, 200 * k}, Wide: Pairs{50_000 / k, 900 * k, 3000 * k}, WaitingCommandsPerS: &commands}
		c := &s.Bench.Contended
		for q := range 1000 {
			c.WaitsMS = append(c.WaitsMS, 0.05*k*math.Exp(float64(q)/150))
			c.HandOversUS = append(c.HandOversUS, 40*k*math.Exp(float64(q)/400))
		}
		c.GrantsPerS, c.Fairness, c.CommandsPerGrant = 9000/k, 1/k, &commands
		r.Strategies = append(r.Strategies, s)
	}
	r.advise()
	r.limits(&stores{own: true})
	return r
}
