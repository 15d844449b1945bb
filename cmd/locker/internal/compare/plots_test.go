package compare

import (
	"testing"

	"github.com/stretchr/testify/require"
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
