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

// TestAgainstOtherLengths: the longest wait and the shares depend on how long a contended run is. They are not compared with those
// of other lengths.
func TestAgainstOtherLengths(t *testing.T) {
	t.Parallel()
	r := sample(t)
	r.BoutS = 0.2
	var old bytes.Buffer
	require.NoError(t, json.NewEncoder(&old).Encode(r))
	r.BoutS = 0.25
	for _, id := range []string{"longest", "share"} {
		f := r.Strategies[0].Figures[id]
		for i := range f.Runs {
			f.Runs[i] *= map[bool]float64{true: 0.5, false: 2}[metricOf(id).more]
		}
		r.Strategies[0].Figures[id] = newFigure(metricOf(id), f.Runs, 300)
	}
	a, err := r.Against(bytes.NewReader(old.Bytes()), 0)
	require.NoError(t, err)
	require.False(t, a.Worse, a.Text())
	require.Contains(t, a.Text(), "contended runs of 200ms then, 250ms now")
	r.BoutS = 0.2
	a, err = r.Against(&old, 0)
	require.NoError(t, err)
	require.True(t, a.Worse)
}

// TestAgainstOtherStore: a strategy that was on another store then is named.
func TestAgainstOtherStore(t *testing.T) {
	t.Parallel()
	r := sample(t)
	var old bytes.Buffer
	require.NoError(t, json.NewEncoder(&old).Encode(r))
	r.Strategies[1].Store = "a store of yours"
	a, err := r.Against(&old, 0)
	require.NoError(t, err)
	require.Equal(t, []string{r.Strategies[1].Name + " was on a server then, and is on a store of yours now."}, a.Lines)
}

// TestAgainstOdd: a file in which something is missing is compared as far as it goes.
func TestAgainstOdd(t *testing.T) {
	t.Parallel()
	r := sample(t)
	for _, odd := range []string{`{"schema":2,"strategies":[null]}`, `{"schema":2,"strategies":[{"name":"setnx","figures":{"pair":null,"wide":{}}}]}`, `{"schema":2,"strategies":null,"load":null}`} {
		a, err := r.Against(strings.NewReader(odd), 0)
		require.NoError(t, err)
		require.False(t, a.Worse)
	}
	for i := range r.Strategies[0].Figures["longest"].Runs {
		r.Strategies[0].Figures["longest"].Runs[i] = 0
	}
	r.Strategies[0].Figures["longest"] = newFigure(metricOf("longest"), r.Strategies[0].Figures["longest"].Runs, 300)
	var old bytes.Buffer
	require.NoError(t, json.NewEncoder(&old).Encode(r))
	r.Strategies[0].Figures["longest"] = strategies("longest", 300, 10)[0].Figures["longest"]
	a, err := r.Against(&old, 0.1)
	require.NoError(t, err)
	require.True(t, a.Worse)
	require.NotContains(t, a.Text(), "Inf")
}
