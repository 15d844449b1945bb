package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A metric is a figure that is found in a sample. Times are in seconds.
type metric struct {
	name   string
	show   func(float64) string
	higher bool // is better
	of     func(*sample) float64
}

var (
	pairsPerSecond = metric{"pairs/s", count, true, perSecond}
	handOvers      = metric{"hand-overs/s", count, true, perSecond}
	grants         = metric{"grants/s", count, true, perSecond}
	clientCPU      = metric{"client CPU per pair", seconds, false, func(s *sample) float64 {
		return s.sum(func(r Result) float64 { return r.CPU.Seconds() }) / s.sum(Result.sections)
	}}
	redisCPU    = metric{"Redis CPU per pair", seconds, false, redisPerSection}
	redisCPUHop = metric{"Redis CPU per hand-over", seconds, false, redisPerSection}
	idleGap     = metric{"idle gap p50", seconds, false, func(s *sample) float64 { return median(s.gaps) }}
	longestWait = metric{"longest wait", seconds, false, func(s *sample) (longest float64) {
		for _, r := range s.results {
			longest = max(longest, r.Longest.Seconds())
		}
		return longest
	}}
	shareOfGoroutines = metric{"smallest ÷ largest share", ratio, true, func(s *sample) float64 { return share(s.results[0].Counts) }}
	shareOfProcesses  = metric{"share between processes", ratio, true, func(s *sample) float64 {
		var counts []float64
		for _, r := range s.results {
			counts = append(counts, r.sections())
		}
		return share(counts)
	}}
)

func (s *sample) sum(of func(Result) float64) (sum float64) {
	for _, r := range s.results {
		sum += of(r)
	}
	return sum
}

func (r Result) sections() (n float64) {
	for _, c := range r.Counts {
		n += c
	}
	return n
}

func perSecond(s *sample) float64 {
	return s.sum(func(r Result) float64 { return r.sections() / r.Elapsed.Seconds() })
}

func redisPerSection(s *sample) float64 { return s.redisCPU() / s.sum(Result.sections) }

func (s *sample) redisCPU() float64 { return s.after.cpu() - s.before.cpu() }

func share(counts []float64) float64 { return slices.Min(counts) / slices.Max(counts) }

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// missing stands for a figure that there is not.
const missing = "–"

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// digits shows three digits of v in the greatest unit that makes it 1 at least.
func digits(v float64, units []string, values []float64) string {
	if !finite(v) {
		return missing
	}
	i := 0
	for i < len(units)-1 && v < values[i] {
		i++
	}
	v /= values[i]
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64) + units[i]
	}
	return fmt.Sprintf("%.0f%s", v, units[i])
}

func count(v float64) string {
	return digits(v, []string{"M", "k", ""}, []float64{1e6, 1e3, 1})
}

func seconds(v float64) string {
	return digits(v, []string{" s", " ms", " µs"}, []float64{1, 1e-3, 1e-6})
}

func bytes(v float64) string {
	return digits(v, []string{" GB", " MB", " KB", " B"}, []float64{1e9, 1e6, 1e3, 1})
}

func ratio(v float64) string {
	switch {
	case !finite(v):
		return missing
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
