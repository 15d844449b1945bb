package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
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
		var cpu time.Duration
		for _, r := range s.results {
			cpu += r.CPU
		}
		return cpu.Seconds() / s.sections()
	}}
	redisCPU    = metric{"Redis CPU per pair", seconds, false, redisPerSection}
	redisCPUHop = metric{"Redis CPU per hand-over", seconds, false, redisPerSection}
	longestWait = metric{"longest wait", seconds, false, func(s *sample) float64 {
		var longest time.Duration
		for _, r := range s.results {
			longest = max(longest, r.Longest)
		}
		return longest.Seconds()
	}}
	shareOfGoroutines = metric{"smallest ÷ largest share", ratio, true, func(s *sample) float64 {
		var counts []int64
		for _, r := range s.results {
			counts = append(counts, r.Counts...)
		}
		return share(counts)
	}}
	shareOfProcesses = metric{"share between processes", ratio, true, func(s *sample) float64 {
		var counts []int64
		for _, r := range s.results {
			counts = append(counts, sum(r.Counts))
		}
		return share(counts)
	}}
	idleGap = metric{"idle gap p50", seconds, false, func(s *sample) float64 { return median(s.gaps) }}
)

func (s *sample) sections() (n float64) {
	for _, r := range s.results {
		n += float64(sum(r.Counts))
	}
	return n
}

func perSecond(s *sample) (rate float64) {
	for _, r := range s.results {
		rate += float64(sum(r.Counts)) / r.Elapsed.Seconds()
	}
	return rate
}

func redisPerSection(s *sample) float64 { return s.redisCPU() / s.sections() }

func (s *sample) redisCPU() float64 { return s.after.cpu() - s.before.cpu() }

func share(counts []int64) float64 {
	return float64(slices.Min(counts)) / float64(slices.Max(counts))
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

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
