package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// strategies are some whose runs of a metric are drawn around medians.
func strategies(id string, events int, medians ...float64) (all []*Strategy) {
	random := rand.New(rand.NewPCG(7, 7))
	for i, median := range medians {
		var runs []float64
		for range runsToRank {
			runs = append(runs, median*(1+random.NormFloat64()/5))
		}
		name := string(rune('a' + i))
		all = append(all, &Strategy{Name: name, Figures: map[string]*Figure{id: newFigure(metricOf(id), runs, events)}})
	}
	return all
}

// TestRank: ranked is outside the noise only.
func TestRank(t *testing.T) {
	t.Parallel()
	best, because := rank(strategies("pair", 1000, 100, 100, 101), []string{"pair"})
	require.Empty(t, best, because)
	require.Contains(t, because, "no difference")
	best, because = rank(strategies("pair", 1000, 100, 200, 101), []string{"pair"})
	require.Equal(t, []string{"a", "c"}, best, because)
	best, because = rank(strategies("wide", 1000, 100, 200, 101), []string{"wide"})
	require.Equal(t, []string{"b"}, best, because)
	best, because = rank(strategies("changes", 5, 100, 200), []string{"changes"})
	require.Empty(t, best, because)
	require.Equal(t, "too little was measured to tell them apart by one key, 4 processes: changes of process (too few events to say)", because)
	few := strategies("pair", 1000, 100, 200)
	few[0].Figures["pair"].Runs = few[0].Figures["pair"].Runs[:29]
	best, because = rank(few, []string{"pair"})
	require.Empty(t, best, because)
	require.Contains(t, because, "fewer than 30 runs")
}

// TestDirection: the test and the medians agree on which one is better, or none is.
func TestDirection(t *testing.T) {
	t.Parallel()
	var often, rarely []float64 // two modes each: the median of the first is greater, and most of its runs are less
	for i := range 60 {
		few := float64(i) / 1000
		often = append(often, map[bool]float64{true: 130, false: 1}[i < 32]+few)
		rarely = append(rarely, map[bool]float64{true: 100, false: 1000}[i < 32]+few)
	}
	for _, m := range []metric{metricOf("pair"), metricOf("wide")} {
		c := m.compared(newFigure(m, often, 1000), newFigure(m, rarely, 1000), apart)
		require.Equal(t, noDifference, c.why, "%s: %+v", m.id, c)
	}
}

// TestUnmeasured: who was not measured is not among the best.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(f map[string]*Figure){
		"no figure":      func(f map[string]*Figure) { delete(f, "changes") },
		"too few events": func(f map[string]*Figure) { f["changes"].Few = true },
	} {
		all := strategies("changes", 1000, 100, 200, 50)
		spoil(all[2].Figures)
		best, because := rank(all, []string{"changes"})
		require.Equal(t, []string{"b"}, best, "%s: %s", name, because)
		require.Regexp(t, "^of a, b: ", because, name)
		require.Contains(t, because, "c could not be ranked: too little was measured", name)
		best, because = rank(all[1:], []string{"changes"})
		require.Empty(t, best, "%s: %s", name, because)
		require.Contains(t, because, "too little was measured", name)
	}
	all := strategies("pair", 1000, 100, 115, 135)
	for i, s := range all {
		s.Figures["pair"] = newFigure(metricOf("pair"), slices.Repeat([]float64{[]float64{100, 115, 135}[i]}, runsToRank), 1000)
	}
	best, because := rank(all, []string{"pair"})
	require.Equal(t, []string{"a", "b"}, best)
	require.NotContains(t, because, "better than the others", "b is not")
}

// TestApart: strategies are told apart if one is better by more than a fifth, however small the noise is.
// Against an earlier comparison a smaller change counts.
func TestApart(t *testing.T) {
	t.Parallel()
	runs := func(median float64) (all []float64) {
		for i := range runsToRank {
			all = append(all, median*(1+float64(i)/1000))
		}
		return all
	}
	for _, m := range []metric{metricOf("pair"), metricOf("wide")} {
		base := newFigure(m, runs(100), 1000)
		near, far := newFigure(m, runs(115), 1000), newFigure(m, runs(130), 1000)
		require.Equal(t, noDifference, m.compared(base, near, apart).why, m.id)
		for _, c := range []comparison{m.compared(near, base, changed), m.compared(far, base, apart)} {
			require.Equal(t, m.more, c.better, m.id)
			require.Equal(t, !m.more, c.worse, m.id)
			require.Less(t, c.p, alpha, m.id)
		}
		require.Equal(t, m.more, m.compared(base, far, apart).worse, m.id)
	}
}

// TestSettled: the page names what the runs did not rank, and what no run measures.
func TestSettled(t *testing.T) {
	t.Parallel()
	r := &Result{Strategies: strategies("pair", 1000, 100, 200, 101), OwnServers: true}
	for i, s := range r.Strategies {
		s.Properties = propertiesOf("setnx")
		s.Figures["wide"] = strategies("wide", 1000, 100, 100, 100)[i].Figures["wide"]
	}
	r.advise()
	settled, not := r.settled()
	needs := func(all []Advice) (names []Need) {
		for _, a := range all {
			names = append(names, a.Need)
		}
		return names
	}
	require.Equal(t, []Need{"order", "crowd", "speed", "interop", "crash", "failover"}, needs(settled))
	require.Equal(t, []Need{"throughput", "contention"}, needs(not))
	require.Len(t, r.unmeasured(), 2)
	r.OwnServers = false
	require.Len(t, r.unmeasured(), 1, "the servers are those of the reader")
}

// TestPrices: who is better by one metric and worse by another one is beaten by nobody.
func TestPrices(t *testing.T) {
	t.Parallel()
	all := strategies("pair", 1000, 100, 200)
	for i, s := range strategies("wide", 1000, 100, 200) {
		all[i].Figures["wide"] = s.Figures["wide"]
	}
	best, because := rank(all, []string{"pair", "gap"})
	require.Equal(t, []string{"a"}, best)
	require.Equal(t, "better than every other one, by more than a fifth beyond the noise, in a free key: Lock + Unlock", because, "the gap was not measured")
	best, because = rank(all, []string{"pair", "wide"})
	require.Empty(t, best)
	require.Contains(t, because, "better by one and worse by another")
}

// TestChain: the best one is not called better than what only another one is better than.
func TestChain(t *testing.T) {
	t.Parallel()
	all := strategies("pair", 1000, 100, 200, 200)
	for i, s := range strategies("wide", 1000, 100, 100, 50) {
		all[i].Figures["wide"] = s.Figures["wide"]
	}
	best, because := rank(all, []string{"pair", "wide"})
	require.Equal(t, []string{"a"}, best)
	require.Contains(t, because, "better than every other one")

	all[2].Figures["pair"] = nil
	all[0].Figures["wide"] = nil
	best, because = rank(all, []string{"pair", "wide"})
	require.Equal(t, []string{"a"}, best)
	require.Contains(t, because, "each of the others is worse than some other one")
}

// TestJudge: a process that takes its own lock again is no change, and a wait that is cut off
// counts with what it has lasted.
func TestJudge(t *testing.T) {
	t.Parallel()
	const us, second = 1000, 1_000_000_000
	f := bout{End: second}.judge([]corner{
		{Grants: []grant{{Token: 1, Asked: 0, Got: 1 * us, Left: 2 * us}, {Token: 2, Asked: 3 * us, Got: 4 * us, Left: 5 * us}}, Cut: second / 2},
		{Grants: []grant{{Token: 3, Asked: 0, Got: 12 * us, Left: 13 * us}}},
		{Cut: second / 4},
	})
	require.Equal(t, 3, f.grants)
	require.Equal(t, 1, f.changes)
	require.Equal(t, []float64{7}, f.gaps)
	require.InDelta(t, 750, f.longest, 1e-9)
	require.True(t, f.cutLongest)
	require.Zero(t, f.share)
	require.InDelta(t, 3, f.perS, 1e-9)
}

func TestBusy(t *testing.T) {
	t.Parallel()
	l := Load{Before: -1, Calibration: newFigure(metric{}, []float64{1, 1, 1.2}, 3)}
	l.judge()
	require.Empty(t, l.Busy)
	l.Calibration = newFigure(metric{}, []float64{1, 2, 3}, 3)
	l.judge()
	require.Contains(t, l.Busy, "constant piece of work")
	l = Load{Before: 1000}
	l.judge()
	require.Contains(t, l.Busy, "1000.0")
}

// TestOnly: what one kind of store promises alone stands in a line.
func TestOnly(t *testing.T) {
	t.Parallel()
	r := &Result{}
	for _, name := range Names() {
		r.Strategies = append(r.Strategies, &Strategy{Name: name, Strategy: name, Properties: propertiesOf(name)})
		require.Contains(t, families, name)
	}
	require.Contains(t, r.only(), "Only PostgreSQL and MySQL: a key can be locked until a transaction of the application's ends")
	require.Contains(t, r.only(), "Only Redis: an owner re-enters from another process; programs with other libraries take the lock")
	r.Strategies = r.Strategies[:3]
	require.Empty(t, r.only(), "there is one kind of store")
}

// TestTwoCopies: of two copies of a strategy none is called better, in 19 of 20 comparisons, whatever
// their runs are like: with a long tail, with a machine that becomes slower, and one that is busy at times.
func TestTwoCopies(t *testing.T) {
	t.Parallel()
	const comparisons = 100
	random := rand.New(rand.NewPCG(3, 3))
	tail := func(int) float64 { return math.Exp(random.NormFloat64()) }
	noises := map[string]func(run int) float64{
		"even":     func(int) float64 { return 1 + random.NormFloat64()/10 },
		"a tail":   tail,
		"slower":   func(run int) float64 { return (1 + float64(run)/15) * (1 + random.NormFloat64()/10) },
		"at times": func(run int) float64 { return map[bool]float64{true: 3, false: 1}[run/5%3 == 0] * tail(run) },
		"ties":     func(int) float64 { return float64(1 + random.IntN(3)) },
	}
	for name, noise := range noises {
		for need, of := range needs {
			if len(of.weighs) == 0 {
				continue
			}
			ranked := 0
			for range comparisons {
				all := []*Strategy{{Name: "a", Figures: map[string]*Figure{}}, {Name: "b", Figures: map[string]*Figure{}}}
				for _, id := range of.weighs {
					runs := [2][]float64{}
					for run := range runsToRank {
						for i := range runs { // in turns: both have the noise of the time
							runs[i] = append(runs[i], 100*noise(run))
						}
					}
					for i, s := range all {
						s.Figures[id] = newFigure(metricOf(id), runs[i], 1000)
					}
				}
				if best, _ := rank(all, of.weighs); len(best) > 0 {
					ranked++
				}
			}
			require.Less(t, float64(ranked)/comparisons, 0.05, "%s, %s", need, name)
		}
	}
}
