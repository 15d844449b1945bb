package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Need is the property of a lock that matters most to somebody.
type Need string

// Needs lists all needs.
var Needs = []Need{"order", "crowd", "speed", "throughput", "contention", "interop", "crash", "failover"}

// needs says what each is: the property that it demands, and the metrics that it weighs.
//
// Contention weighs no gap. The changes of process count the gaps already; and where processes poll, a
// change takes place only if one of them asks in the short time before the holder is back, so that the gaps at
// changes are a selection of short ones.
var needs = map[Need]struct {
	what    string
	demands string   // a property; "" is none
	weighs  []string // metrics; none: what meets it is not ranked
	none    string   // who has the property
}{
	"order":      {"first come, first served, between processes", "order", []string{"longest", "share"}, "blpop keeps a queue in Redis, etcd is one"},
	"crowd":      {"hundreds of processes wait for one key, such as the workers of a queue", "crowd", []string{"gap", "cpu", "waitingcpu", "waiting"}, "blpop and etcd wake one of them at a release"},
	"speed":      {"a lock that is mostly free, one after another", "processes", []string{"pair"}, ""},
	"throughput": {"many locks at a time, of one process", "processes", []string{"wide"}, ""},
	"contention": {"one key that a few processes want all the time", "processes", []string{"changes", "longest"}, ""},
	"interop":    {"programs with other libraries take the lock, too, such as a Java service", "interop", nil, "setnx (SET NX PX) and hashreentrant (Redisson) are made for it"},
	"crash":      {"a lock survives a crash of its server, such as the lock of a long nightly job (Redis: only with appendfsync always)", "crash", nil, "postgres, mysql and etcd keep locks on disk"},
	"failover":   {"no lock is lost, or granted twice, when one server dies with its data", "failover", nil, "redlock and etcd are made for it"},
}

// Advice says which strategies meet a need, and which of them are the best beyond the noise.
type Advice struct {
	Need    Need     `json:"need"`
	What    string   `json:"what"`
	Weighs  []string `json:"weighs,omitempty"` // metrics
	Meet    []string `json:"meet"`
	Best    []string `json:"best,omitempty"` // those that no other one is better than; left out: not ranked
	Because string   `json:"because"`
	Prices  []Price  `json:"prices,omitempty"`
}

// Price has the costs of a strategy that meets a need.
type Price struct {
	Strategy string `json:"strategy"`
	How      string `json:"how,omitempty"` // it has the property
	Figures  string `json:"figures,omitempty"`
}

// advise finds, for each need that is asked for, those that meet it and that the suite found
// nothing wrong with.
func (r *Result) advise() {
	r.Advice = nil
	if len(r.Strategies) < 2 {
		return // there was no choice
	}
	for _, need := range Needs {
		if r.need == "" || r.need == need {
			r.Advice = append(r.Advice, r.adviseOn(need))
		}
	}
}

func (r *Result) adviseOn(need Need) Advice {
	of := needs[need]
	a := Advice{Need: need, What: of.what, Weighs: of.weighs}
	var meet []*Strategy
	var failed []string
	for _, s := range r.Strategies {
		how, has := s.Properties[of.demands]
		switch {
		case !has:
		case s.Suite != nil && s.Suite.Failed > 0:
			failed = append(failed, s.Name)
		case s.Error != "":
			failed = append(failed, s.Name)
		default:
			meet = append(meet, s)
			a.Meet = append(a.Meet, s.Name)
			a.Prices = append(a.Prices, Price{s.Name, how, s.price(of.weighs)})
		}
	}
	if of.demands == "processes" {
		for i := range a.Prices {
			a.Prices[i].How = ""
		}
	}
	switch {
	case len(meet) == 0 && len(failed) > 0:
		a.Because = "there were errors, or cases of the suite failed, for " + strings.Join(failed, ", ") + ": look into these first"
	case len(meet) == 0:
		a.Because = "none of those compared: " + of.none
	case len(of.weighs) == 0:
		a.Because = "by what the strategies promise, not by a figure of this run"
	case len(meet) == 1:
		a.Best, a.Because = a.Meet, "no other one here meets the need"
	default:
		a.Best, a.Because = rank(meet, of.weighs)
	}
	return a
}

// rank returns those that no other one is better than: better by one of the metrics and worse by
// none, by more than a fifth beyond the noise. A strategy that no metric compares with any other one is not ranked.
func rank(meet []*Strategy, weighs []string) (best []string, because string) {
	var measured []*Strategy
	var not []string
	for _, s := range meet {
		if s.comparable(meet, weighs) {
			measured = append(measured, s)
		} else {
			not = append(not, s.Name)
		}
	}
	if len(not) == 0 || len(measured) == 0 {
		return rankAll(meet, weighs)
	}
	best, because = rankAll(measured, weighs)
	return best, "of " + strings.Join(namesOf(measured), ", ") + ": " + because + "; " + strings.Join(not, ", ") + " could not be ranked: too little was measured"
}

// comparable reports whether a metric was measured often enough for s and for another strategy.
func (s *Strategy) comparable(with []*Strategy, weighs []string) bool {
	return slices.ContainsFunc(with, func(o *Strategy) bool {
		return o != s && slices.ContainsFunc(weighs, func(id string) bool {
			c := metricOf(id).compared(s.Figures[id], o.Figures[id], apart)
			return c.better || c.worse || c.why == noDifference
		})
	})
}

// rankAll ranks.
func rankAll(meet []*Strategy, weighs []string) (best []string, because string) {
	whys := make(map[string]string) // why a metric does not rank two of them, unless there is no difference
	var by []string                 // metrics that do
	won := make(map[string]int)     // how many each is better than
	for _, s := range meet {
		beaten := false
		for _, o := range meet {
			better, worse := false, false
			for _, id := range weighs {
				c := metricOf(id).compared(o.Figures[id], s.Figures[id], apart)
				better, worse = better || c.better, worse || c.worse
				if c.better && !slices.Contains(by, id) {
					by = append(by, id)
				}
				if o != s && c.why != "" && c.why != noDifference {
					whys[id] = c.why
				}
			}
			if better && !worse {
				beaten, won[o.Name] = true, won[o.Name]+1
			}
		}
		if !beaten {
			best = append(best, s.Name)
		}
	}
	slices.SortFunc(by, func(a, b string) int { return cmp.Compare(slices.Index(weighs, a), slices.Index(weighs, b)) })
	among := "no such difference was found"
	if len(weighs) > 1 {
		among = "each is better by one figure and worse by another one, or no such difference was found"
	}
	switch {
	case len(by) == 0 && len(whys) == len(weighs):
		return nil, "too little was measured to tell them apart by " + titlesOf(weighs, whys)
	case len(by) == 0:
		return nil, noDifference + " of more than a fifth was found between them by " + titlesOf(weighs, whys)
	case len(best) == 1 && won[best[0]] == len(meet)-1:
		return best, "better than every other one, by more than a fifth beyond the noise, in " + titlesOf(by, nil)
	case len(best) == 1:
		return best, "each of the others is worse than some other one, by more than a fifth beyond the noise, in " + titlesOf(by, nil)
	case len(best) == len(meet), len(best) == 0:
		return nil, "each is better by one and worse by another one of " + titlesOf(weighs, whys) + ", or no difference was found"
	}
	return best, "no other one is better than these, and each of the others is worse than some other one, by more than a fifth beyond the noise, in " + titlesOf(by, nil) + "; among these " + among
}

// titlesOf returns the titles of metrics, with the reason why a metric ranks no strategies.
func titlesOf(ids []string, whys map[string]string) string {
	var titles []string
	for _, id := range ids {
		title := strings.TrimPrefix(metricOf(id).title, "… ")
		if why := whys[id]; why != "" {
			title += " (" + why + ")"
		}
		titles = append(titles, title)
	}
	return strings.Join(titles, ", ")
}

// price shows the figures that a need weighs, and those of a free key, which everybody pays.
func (s *Strategy) price(weighs []string) string {
	var parts []string
	for _, m := range metrics {
		if f := s.Figures[m.id]; f != nil && (m.id == "pair" || slices.Contains(weighs, m.id)) {
			parts = append(parts, strings.TrimSpace(strings.TrimPrefix(m.title, "… ")+" "+f.text()+" "+m.unit))
		}
	}
	return strings.Join(parts, ", ")
}

// text returns the figure with its spread and the number of events.
func (f *Figure) text() string {
	switch {
	case f == nil:
		return "–"
	case f.Few:
		return fmt.Sprintf("too few to say (%d)", f.Events)
	case len(f.Runs) == 1:
		return f.median()
	}
	return fmt.Sprintf("%s (%s; %s)", f.median(), f.spread(), count(f.Events))
}

// median returns the median, marked where waits that were cut off count in it.
func (f *Figure) median() string { return atLeast(f.MedianAtLeast) + figure(f.Median) }

// spread returns the least and the greatest run.
func (f *Figure) spread() string {
	return figure(f.Least) + " to " + atLeast(f.AtLeast) + figure(f.Greatest)
}

func atLeast(is bool) string { return map[bool]string{true: "≥ "}[is] }

// verdict returns the advice in a line.
func (a Advice) verdict() string {
	switch {
	case len(a.Best) > 0:
		return strings.Join(a.Best, ", ") + ": " + a.Because
	case len(a.Meet) > 0:
		return strings.Join(a.Meet, ", ") + ": " + a.Because
	}
	return a.Because
}

// onAxis formats a number as figure has it, without zeros that say nothing.
func onAxis(v float64) string {
	number, unit := strings.CutSuffix(figure(v), "k")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	if unit {
		number += "k"
	}
	return number
}

// count formats a number of things, with three digits that count.
func count(n int) string {
	if n < 995 {
		return strconv.Itoa(n)
	}
	return figure(float64(n))
}

// figure formats a number with three digits that count.
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
