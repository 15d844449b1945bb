package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/distlock/locker/benchmarks/internal/rig"
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

// best returns the peer with the best value.
func (r results) best(s scenario, label string, m metric) (name string) {
	best := math.NaN()
	for _, p := range peers {
		v := r.value(s, label, p, m)
		if math.IsNaN(best) || m.higher && v > best || !m.higher && v < best {
			best, name = v, p
		}
	}
	return name
}

// relative returns the median of the rounds' ratios of a contender to another, or to the best
// peer: what slows the machine down for some seconds slows both down.
func (r results) relative(s scenario, label, contender string, m metric, to string) float64 {
	if to == bestPeer {
		to = r.best(s, label, m)
	}
	of, by := r[figure{s.name, label, contender, m.name}], r[figure{s.name, label, to, m.name}]
	if len(of) != len(by) { // a round of one of them has failed
		return median(of) / median(by)
	}
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / by[i]
	}
	return median(ratios)
}

// table has a row for each contender: metrics of one setup, or one metric of several.
func (r results) table(s scenario, labels []string, metrics []metric) string {
	rows := make([][]string, 1+len(s.who))
	column := func(title string, cell func(contender string) string) {
		rows[0] = append(rows[0], title)
		for i, c := range s.who {
			rows[i+1] = append(rows[i+1], cell(c))
		}
	}
	corner := labels[0]
	if len(labels) > 1 {
		corner = metrics[0].name
	}
	column(corner, func(c string) string { return c })
	for _, label := range labels {
		for _, m := range metrics {
			title := m.name
			if len(labels) > 1 {
				title = label
			}
			column(title, func(c string) string { return m.show(r.value(s, label, c, m)) })
			if slices.Contains(s.who, "floor") {
				column("÷ floor", func(c string) string { return ratio(r.relative(s, label, c, m, "floor")) })
			}
			column("÷ best peer", func(c string) string { return ratio(r.relative(s, label, c, m, bestPeer)) })
		}
	}
	return rig.Markdown(rows)
}

// tables returns the tables of all metrics of a scenario, one for each setup.
func (r results) tables(s scenario) string {
	var out []string
	for _, set := range s.setups {
		out = append(out, r.table(s, []string{set.label}, s.metrics))
	}
	return strings.Join(out, "\n")
}

// targets has a row for each target.
func (r results) targets(ss []scenario) string {
	of := append(slices.Clone(ours), "redlock")
	rows := [][]string{append([]string{"scenario", "figure", "target"}, of...)}
	for _, s := range ss {
		for _, t := range s.targets {
			row := []string{strings.TrimSpace(s.name + " " + t.setup), t.metric.name, t.String()}
			for _, c := range of {
				row = append(row, r.verdict(s, t, c))
			}
			rows = append(rows, row)
		}
	}
	return rig.Markdown(rows)
}

func (r results) verdict(s scenario, t target, contender string) string {
	v := r.value(s, t.setup, contender, t.metric)
	out := t.metric.show(v)
	if t.times != "" {
		v = r.relative(s, t.setup, contender, t.metric, t.times)
		out = ratio(v) + " ×"
	}
	switch {
	case !slices.Contains(t.of, contender):
		return ""
	case !finite(v):
		return missing
	case t.metric.higher && v >= t.factor, !t.metric.higher && v <= t.factor:
		return out + ", met"
	}
	return out + ", not met"
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

// print writes all tables.
func (r results) print(w io.Writer, ss []scenario) {
	for _, s := range ss {
		fmt.Fprintf(w, "%s: %s\n\n%s\n", s.name, s.about, r.tables(s))
	}
	fmt.Fprint(w, r.targets(ss))
}
