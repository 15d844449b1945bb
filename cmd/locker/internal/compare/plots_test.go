package compare

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAxes: numbers on an axis are written as those on the bars are.
func TestAxes(t *testing.T) {
	t.Parallel()
	pairs := 22_400.0
	r := &Result{Strategies: []*Strategy{{Name: "setnx", Bench: &Bench{}}}}
	p, err := r.bars("title", "pairs/s", func(*Bench) *float64 { return &pairs })
	require.NoError(t, err)
	svg, err := inSVG(p)
	require.NoError(t, err)
	require.Contains(t, svg, ">22.4k<")
	require.Contains(t, svg, ">25.0k<")
	require.NotContains(t, svg, "000<")
	require.NotContains(t, svg, ">0.00<")
}
