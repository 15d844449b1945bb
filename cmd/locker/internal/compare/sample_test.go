package compare

import (
	"math"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
)

// sampleSecond is one in which few changes, or many, are.
func sampleSecond(i int) *Second {
	b := bout{End: int64(time.Second)}
	f := &fought{}
	for at := int64(0); at < b.End; at += int64(time.Millisecond) {
		process := int(at/int64(time.Millisecond)) / (1 + 100*(i%2)) % contenders
		f.all = append(f.all, grant{Got: at, Left: at + 30_000, process: process})
	}
	f.changes = 1000 / (1 + 100*(i%2))
	return b.second(f)
}

// sample is a Result as a run makes it, of figures that are made up.
func sample(t *testing.T) *Result {
	t.Helper()
	r := &Result{Schema: schema, Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), TookS: 68, Machine: "a machine", Load: Load{Calibration: newFigure(metric{}, []float64{3, 4}, 2)}}
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
		s.Strategy, s.Store, s.Properties, s.on = name, "a server", propertiesOf(name), &contestant{name: name, kind: name}
		s.Figures = make(map[string]*Figure)
		for _, m := range metrics {
			var runs []float64
			for run := range 30 {
				runs = append(runs, 1000*k*(1+float64(run)/1000))
			}
			s.Figures[m.id] = newFigure(m, runs, 300)
		}
		for q := range 1000 {
			s.waits = append(s.waits, 0.05*k*math.Exp(float64(q)/150))
			s.gaps = append(s.gaps, 40*k*math.Exp(float64(q)/400))
		}
		if name != "memory" {
			s.Second = sampleSecond(i)
			s.Faults = []Fault{{Kind: "frozen", BackMS: 3000, ToldMS: 1480 + k, GrantMS: 3010 + k}}
		}
		if i < 3 {
			s.Faults = append(s.Faults, Fault{Kind: "killed", BackMS: 3100, ToldMS: 1480 + k, GrantMS: 1400, OverlapMS: 80 + k})
		}
		r.Strategies = append(r.Strategies, s)
	}
	r.advise()
	r.limits(&stores{own: true}, Options{Runs: 30, Time: 100 * time.Millisecond})
	return r
}
