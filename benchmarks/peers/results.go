package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// results are the figures of all rounds.
type results map[figure][]float64

// A figure is a metric of a contender in a setup of a scenario.
type figure struct{ scenario, setup, contender, metric string }

func (r results) add(s scenario, label, contender string, got *sample) {
	for _, m := range s.metrics {
		f := figure{s.name, label, contender, m.name}
		r[f] = append(r[f], m.of(got))
	}
}

func (r results) value(s scenario, label, contender string, m metric) float64 {
	return median(r[figure{s.name, label, contender, m.name}])
}

// best is the best value of a peer.
func (r results) best(s scenario, label string, m metric) float64 {
	best := math.NaN()
	for _, p := range peers {
		v := r.value(s, label, p, m)
		if math.IsNaN(best) || m.higher && v > best || !m.higher && v < best {
			best = v
		}
	}
	return best
}

// met says whether a contender meets a target, and what it is; ok is false where
// there are no figures.
func (r results) met(s scenario, t target, contender string) (met, ok bool) {
	label := t.setup
	limit := t.factor
	switch t.times {
	case "":
	case bestPeer:
		limit *= r.best(s, label, t.metric)
	default:
		limit *= r.value(s, label, t.times, t.metric)
	}
	v := r.value(s, label, contender, t.metric)
	if math.IsNaN(v) || math.IsNaN(limit) {
		return false, false
	}
	return t.metric.higher && v >= limit || !t.metric.higher && v <= limit, true
}

func (t target) String() string {
	sign := "≤"
	if t.metric.higher {
		sign = "≥"
	}
	if t.times == "" {
		return sign + " " + t.metric.show(t.factor)
	}
	return fmt.Sprintf("%s %.4g × %s", sign, t.factor, t.times)
}

// table has a row for each contender, with all metrics of a setup.
func (r results) table(s scenario, label string) [][]string {
	head := []string{"contender"}
	hasFloor := slices.Contains(s.who, "floor")
	hasPeer := slices.ContainsFunc(s.who, func(c string) bool { return slices.Contains(peers, c) })
	for _, m := range s.metrics {
		head = append(head, m.name)
		if hasFloor {
			head = append(head, "÷ floor")
		}
		if hasPeer {
			head = append(head, "÷ best peer")
		}
	}
	rows := [][]string{head}
	for _, c := range s.who {
		row := []string{c}
		for _, m := range s.metrics {
			v := r.value(s, label, c, m)
			row = append(row, m.show(v))
			if hasFloor {
				row = append(row, ratio(v, r.value(s, label, "floor", m)))
			}
			if hasPeer {
				row = append(row, ratio(v, r.best(s, label, m)))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func ratio(v, to float64) string {
	q := v / to
	switch {
	case math.IsNaN(q) || math.IsInf(q, 0):
		return missing
	case q >= 10:
		return fmt.Sprintf("%.0f", q)
	}
	return fmt.Sprintf("%.2f", q)
}

// print writes all tables as text.
func (r results) print(w io.Writer, ss []scenario) {
	for _, s := range ss {
		for _, set := range s.setups {
			fmt.Fprintf(w, "\n%s %s: %s\n", s.name, set.label, s.about)
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			for _, row := range r.table(s, set.label) {
				fmt.Fprintln(tw, strings.Join(row, "\t"))
			}
			_ = tw.Flush()
		}
		for _, t := range s.targets {
			fmt.Fprintf(w, "target: %s %s:", t.metric.name, t)
			for _, c := range t.of {
				met, ok := r.met(s, t, c)
				fmt.Fprintf(w, " %s %s", c, verdict(met, ok))
			}
			fmt.Fprintln(w)
		}
	}
}

func verdict(met, ok bool) string {
	switch {
	case !ok:
		return missing
	case met:
		return "met"
	}
	return "not met"
}
