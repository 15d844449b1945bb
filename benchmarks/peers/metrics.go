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
	unit   unit
	higher bool // is better
	of     func(*sample) float64
}

type unit func(float64) string

var (
	pairsPerSecond = metric{"pairs/s", count, true, perSecond}
	handOvers      = metric{"hand-overs/s", count, true, perSecond}
	grants         = metric{"grants/s", count, true, perSecond}
	clientCPU      = metric{"client CPU per pair", duration, false, func(s *sample) float64 {
		var cpu time.Duration
		for _, r := range s.results {
			cpu += r.CPU
		}
		return cpu.Seconds() / float64(s.sections())
	}}
	redisCPU    = metric{"Redis CPU per pair", duration, false, redisPerSection}
	redisCPUHop = metric{"Redis CPU per hand-over", duration, false, redisPerSection}
	longestWait = metric{"longest wait", duration, false, func(s *sample) float64 {
		var longest time.Duration
		for _, r := range s.results {
			longest = max(longest, r.Longest)
		}
		return longest.Seconds()
	}}
	shareOfGoroutines = metric{"smallest ÷ largest share", plain, true, func(s *sample) float64 {
		var counts []int64
		for _, r := range s.results {
			counts = append(counts, r.Counts...)
		}
		return share(counts)
	}}
	shareOfProcesses = metric{"share between processes", plain, true, func(s *sample) float64 {
		var counts []int64
		for _, r := range s.results {
			counts = append(counts, sum(r.Counts))
		}
		return share(counts)
	}}
	idleGap = metric{"idle gap p50", duration, false, func(s *sample) float64 {
		if len(s.gaps) == 0 {
			return math.NaN()
		}
		slices.Sort(s.gaps)
		return s.gaps[len(s.gaps)/2].Seconds()
	}}
)

func (s *sample) sections() (n int64) {
	for _, r := range s.results {
		n += sum(r.Counts)
	}
	return n
}

func perSecond(s *sample) (rate float64) {
	for _, r := range s.results {
		rate += float64(sum(r.Counts)) / r.Elapsed.Seconds()
	}
	return rate
}

func redisPerSection(s *sample) float64 {
	return s.redis.cpu.Seconds() / float64(s.sections())
}

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

func count(v float64) string {
	switch {
	case v >= 1e6:
		return threeDigits(v/1e6) + " M"
	case v >= 1e4:
		return threeDigits(v/1e3) + "k"
	}
	return fmt.Sprintf("%.0f", v)
}

func bytes(v float64) string { return fmt.Sprintf("%.0f B", v) }

func plain(v float64) string { return fmt.Sprintf("%.2f", v) }

func duration(v float64) string {
	switch {
	case v < 1e-3:
		return threeDigits(v*1e6) + " µs"
	case v < 1:
		return threeDigits(v*1e3) + " ms"
	}
	return threeDigits(v) + " s"
}

func threeDigits(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// show is a value in its unit.
func (m metric) show(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return missing
	}
	return m.unit(v)
}
