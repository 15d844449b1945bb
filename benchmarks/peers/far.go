package main

import "time"

var far = scenario{
	name:  "far",
	about: "256 goroutines of one process, a key each, with the round trip longer by",
	setups: []setup{
		{label: "5 ms", rtt: 5 * time.Millisecond, settle: time.Second / 2, job: Job{Workers: 256, Keys: 256}},
		{label: "20 ms", rtt: 20 * time.Millisecond, settle: time.Second / 2, job: Job{Workers: 256, Keys: 256}},
	},
	who:     all,
	rounds:  3,
	metrics: []metric{pairsPerSecond},
	targets: []target{
		{metric: pairsPerSecond, of: ours, factor: mostOfTwoTrips(5 * time.Millisecond), setup: "5 ms"},
		{metric: pairsPerSecond, of: ours, factor: 1, times: "rueidislock", setup: "5 ms"},
		{metric: pairsPerSecond, of: ours, factor: mostOfTwoTrips(20 * time.Millisecond), setup: "20 ms"},
		{metric: pairsPerSecond, of: ours, factor: 1, times: "rueidislock", setup: "20 ms"},
	},
}

// mostOfTwoTrips returns 95 % of the pairs per second that 256 goroutines can make if a pair takes two round trips
// and nothing else.
func mostOfTwoTrips(rtt time.Duration) float64 { return 0.95 * 256 / (2 * rtt.Seconds()) }

var farTurns = scenario{
	name:  "far-turns",
	about: "2 processes of 1 goroutine, one key, sections of 1 ms, with the round trip longer by",
	setups: []setup{
		{label: "5 ms", rtt: 5 * time.Millisecond, processes: 2, job: Job{Workers: 1, Keys: 1, Hold: time.Millisecond, Record: true}},
		{label: "20 ms", rtt: 20 * time.Millisecond, processes: 2, job: Job{Workers: 1, Keys: 1, Hold: time.Millisecond, Record: true}},
	},
	who:     waiting,
	rounds:  3,
	metrics: []metric{idleGap, shareOfProcesses, longestWait},
}

var farKeys = scenario{
	name:    "far-keys",
	about:   "100 keys that 2 processes of 100 goroutines contend for, with a round trip longer by 10 ms",
	setups:  []setup{{rtt: 10 * time.Millisecond, processes: 2, job: Job{Workers: 100, Keys: 100, Record: true}}},
	who:     waiting,
	rounds:  3,
	metrics: []metric{grants, shareOfProcesses, longestWait},
	targets: []target{{metric: grants, of: []string{"blpop"}, factor: 1, times: "hashreentrant"}},
}

// beside lasts for nine renewals of the locks held.
var beside = scenario{
	name:  "beside",
	about: "30 locks with a TTL of 3 s held beside 2,000 goroutines, a key each, with a round trip longer by 20 ms",
	setups: []setup{{rtt: 20 * time.Millisecond, least: 9 * time.Second, settle: time.Second,
		job: Job{Workers: 2000, Keys: 2000, Held: 30, HeldTTL: 3 * time.Second}}},
	who:     renewed,
	rounds:  1,
	metrics: []metric{lost, failedUnlocks, pairsPerSecond},
	targets: []target{
		{metric: lost, of: ours, factor: 0},
		{metric: failedUnlocks, of: ours, factor: 0},
	},
}

var (
	lost = metric{"locks lost", count, false, func(s *sample) float64 {
		return float64(s.results[0].Lost)
	}}
	failedUnlocks = metric{"failed Unlocks", count, false, func(s *sample) float64 {
		return float64(s.results[0].FailedUnlocks)
	}}
)
