package compare

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgainst: what is worse outside the noise by more than the threshold is found, and nothing
// where nothing has changed.
func TestAgainst(t *testing.T) {
	t.Parallel()
	r := sample(t)
	var old bytes.Buffer
	require.NoError(t, json.NewEncoder(&old).Encode(r))
	against := func(threshold float64) *Against {
		a, err := r.Against(bytes.NewReader(old.Bytes()), threshold)
		require.NoError(t, err)
		return a
	}
	require.False(t, against(0).Worse)
	require.NotContains(t, against(0).Text(), "worse")

	for i, v := range r.Strategies[0].Figures["pair"].Runs {
		r.Strategies[0].Figures["pair"].Runs[i] = 1.2 * v
	}
	r.Strategies[0].Figures["pair"] = newFigure(metricOf("pair"), r.Strategies[0].Figures["pair"].Runs, 300)
	require.True(t, against(0.1).Worse)
	require.Contains(t, against(0.1).Text(), "+20 %, worse")
	require.False(t, against(0.3).Worse)

	for _, wrong := range []string{"", "{}", `{"schema":1}`, "no JSON"} {
		_, err := r.Against(strings.NewReader(wrong), 0)
		require.ErrorIs(t, err, ErrUsage)
	}
}

// TestAgainstMissing: what was measured then, and is not now, is named.
func TestAgainstMissing(t *testing.T) {
	t.Parallel()
	r := sample(t)
	var old bytes.Buffer
	require.NoError(t, json.NewEncoder(&old).Encode(r))
	gone := r.Strategies[0].Name
	r.Strategies = r.Strategies[1:]
	delete(r.Strategies[0].Figures, "pair")
	a, err := r.Against(&old, 0)
	require.NoError(t, err)
	require.Contains(t, a.Lines, gone+" was measured then, and is not now.")
	require.Contains(t, a.Lines, r.Strategies[0].Name+", "+metricOf("pair").title+": measured then, and not now.")
}
