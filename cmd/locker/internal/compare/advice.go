package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Need is the property of a lock that matters most to somebody.
type Need string

// Needs are all there are.
var Needs = []Need{"order", "speed", "interop", "failover"}

// needs says what each is, and how strategies are ranked for it: by a figure, the
// greatest first, among those that fulfil what it demands.
var needs = map[Need]struct {
	what    string
	demands func(s *Strategy) bool
	figure  func(s *Strategy) float64
	because func(s *Strategy) string
	none    string // it can be had of these
}{
	"order": {
		what:    "first come, first served, between processes",
		demands: func(s *Strategy) bool { ok, _ := s.passed("FIFOAcrossLockers"); return ok },
		figure:  func(s *Strategy) float64 { return s.Bench.Contended.Fairness },
		because: func(s *Strategy) string {
			return fmt.Sprintf("the suite saw it serve in order (waiting/FIFOAcrossLockers), and of processes that contend the one with the smallest share had %.0f %% of the largest", 100*s.Bench.Contended.Fairness)
		},
		none: "blpop keeps a queue in Redis",
	},
	"speed": {
		what:    "the most locks a second, free and contended",
		demands: func(*Strategy) bool { return true },
		figure:  func(s *Strategy) float64 { return s.Bench.Solo.PerS * s.Bench.Wide.PerS * s.Bench.Contended.GrantsPerS },
		because: func(s *Strategy) string {
			return fmt.Sprintf("%s pairs/s by one goroutine, %s by %d, and %s grants/s of a contended key: the most of the three multiplied",
				figure(s.Bench.Solo.PerS), figure(s.Bench.Wide.PerS), wideGoroutines, figure(s.Bench.Contended.GrantsPerS))
		},
	},
	"interop": {
		what:    "a lock that programs with other libraries take, too",
		demands: func(s *Strategy) bool { return s.Name == "setnx" || s.Name == "hashreentrant" },
		figure:  func(s *Strategy) float64 { return map[string]float64{"setnx": 2, "hashreentrant": 1}[s.Name] },
		because: func(s *Strategy) string {
			if s.Name == "hashreentrant" {
				return "it has Redisson's layout and messages, so Java and Go exclude and wake one another"
			}
			return "its lock is SET NX PX, which each Redis client and most libraries take; where the others use Redisson it is hashreentrant"
		},
		none: "setnx (SET NX PX) and hashreentrant (Redisson) are made for it",
	},
	"failover": {
		what:    "no lock is given twice, or lost, when one Redis server dies with what it knows",
		demands: func(s *Strategy) bool { return s.Name == "redlock" },
		figure:  func(*Strategy) float64 { return 1 },
		because: func(s *Strategy) string {
			return fmt.Sprintf("a majority of independent servers decides, for %s pairs/s by one goroutine here. The others lose a lock that a dead server had not replicated; WithReplicaAcks makes that rare, fencing tokens make it safe",
				figure(s.Bench.Solo.PerS))
		},
		none: "redlock is made for it, and needs three servers or more (--nodes)",
	},
}

// Advice is the strategy that the figures favour.
type Advice struct {
	Need     Need   `json:"need"`
	What     string `json:"what"`
	Strategy string `json:"strategy,omitempty"` // "" is none of those that were compared
	Because  string `json:"because"`
}

// advise finds, for each need that is asked for, the best one of those that the suite found
// nothing wrong with.
func (r *Result) advise() {
	if len(r.Strategies) < 2 {
		return // there was no choice
	}
	for _, need := range Needs {
		if r.need != "" && r.need != need {
			continue
		}
		of := needs[need]
		a := Advice{Need: need, What: of.what}
		var fit []*Strategy
		var failed []string
		for _, s := range r.Strategies {
			switch {
			case s.Suite == nil || s.Bench == nil || !of.demands(s):
			case s.Suite.Failed > 0:
				failed = append(failed, s.Name)
			default:
				fit = append(fit, s)
			}
		}
		slices.SortStableFunc(fit, func(a, b *Strategy) int { return cmp.Compare(of.figure(b), of.figure(a)) })
		switch {
		case len(fit) > 0:
			a.Strategy, a.Because = fit[0].Name, of.because(fit[0])
		case len(failed) > 0:
			a.Because = "cases of the suite failed for " + strings.Join(failed, ", ") + ": look into these first"
		default:
			a.Because = "none of those compared: " + of.none
		}
		r.Advice = append(r.Advice, a)
	}
}

// figure is a number with three digits that count.
func figure(v float64) string {
	switch {
	case v >= 99_500:
		return fmt.Sprintf("%.0fk", v/1000)
	case v >= 9950:
		return fmt.Sprintf("%.1fk", v/1000)
	case v >= 995:
		return fmt.Sprintf("%.2fk", v/1000)
	case v >= 99.5:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.95:
		return fmt.Sprintf("%.1f", v)
	case v == 0:
		return "0"
	}
	return fmt.Sprintf("%.2f", v)
}
