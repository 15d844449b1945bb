package compare

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// TestAxes: numbers on an axis are written as those on the bars are.
func TestAxes(t *testing.T) {
	t.Parallel()
	m := metricOf("wide")
	r := &Result{Strategies: []*Strategy{{Name: "setnx", Figures: map[string]*Figure{"wide": newFigure(m, []float64{22_400}, 1000)}}}}
	p, err := r.bars(m)
	require.NoError(t, err)
	svg, err := inSVG(p)
	require.NoError(t, err)
	require.Contains(t, svg, ">22.4k<")
	require.Contains(t, svg, ">25k<")
	require.NotContains(t, svg, "000<")
	require.NotContains(t, svg, ">0.00<")
}

// TestOffTheScale: one run of a busy machine does not make all bars too short to be seen.
func TestOffTheScale(t *testing.T) {
	t.Parallel()
	all := strategies("pair", 1000, 100, 120)
	all[0].Figures["pair"].Greatest, all[0].Figures["pair"].Runs[0] = 100_000, 100_000
	p, err := (&Result{Strategies: all}).bars(metricOf("pair"))
	require.NoError(t, err)
	require.Less(t, p.Y.Max, 300.0)
	svg, err := inSVG(p)
	require.NoError(t, err)
	require.Contains(t, svg, figure(all[0].Figures["pair"].Median))
}

// TestNamesBesideEachOther: no name below a bar is written over the next one, however many strategies there are.
func TestNamesBesideEachOther(t *testing.T) {
	t.Parallel()
	r := &Result{}
	for i := range 8 {
		name := "hashreentrant" + map[bool]string{true: fmt.Sprint("#", i+1)}[i > 0]
		r.Strategies = append(r.Strategies, &Strategy{Name: name, Figures: map[string]*Figure{"pair": newFigure(metricOf("pair"), []float64{100}, 1000)}})
		p, err := r.bars(metricOf("pair"))
		require.NoError(t, err)
		area := p.DataCanvas(draw.New(vgsvg.New(width, height)))
		apart := (area.Max.X - area.Min.X) / vg.Length(p.X.Max-p.X.Min)
		across := p.X.Tick.Label.Width(name)
		if turn := p.X.Tick.Label.Rotation; turn != 0 { // the lines are as far from each other as they are high
			apart, across = apart*vg.Length(math.Sin(turn)), p.X.Tick.Label.Height(name)
		}
		require.Less(t, across, apart, "%d names", i+1)
	}
}
