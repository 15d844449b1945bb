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
