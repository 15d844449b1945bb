package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/memory"
	"github.com/stretchr/testify/require"
)

// nothing takes what is written to a contender.
type nothing struct{ io.Writer }

func (nothing) Close() error { return nil }

// recordedRing has contenders that have recorded these bouts already.
func recordedRing(t *testing.T, contenders ...[]corner) *ring {
	t.Helper()
	r := &ring{}
	for _, corners := range contenders {
		var lines bytes.Buffer
		for _, c := range corners {
			require.NoError(t, json.NewEncoder(&lines).Encode(c))
		}
		r.all, r.in = append(r.all, &child.Child{WriteCloser: nothing{io.Discard}}), append(r.in, json.NewDecoder(&lines))
	}
	return r
}

// TestFightAfterAnError: what contenders recorded of a bout in which one had an error is not counted in the next bout,
// which is of another strategy.
func TestFightAfterAnError(t *testing.T) {
	t.Parallel()
	r := recordedRing(t,
		[]corner{{Error: "out of luck"}, {}},
		[]corner{{Grants: make([]grant, 5)}, {Grants: make([]grant, 1)}},
	)
	_, _, err := r.fight(t.Context(), "a", time.Millisecond)
	require.ErrorContains(t, err, "out of luck")
	_, f, err := r.fight(t.Context(), "b", time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, 1, f.grants)
}

// TestWideFarAway: a store that is 20 ms away grants a goroutine 25 locks in a second at most, however short a run is.
func TestWideFarAway(t *testing.T) {
	t.Parallel()
	st := &Strategy{Name: "far", on: &contestant{kind: "memory"}} // without a contended key
	l, release, err := place{URL: "setnx+redis://" + far(t, redistest.Start(t).Addr()), Mark: "m:"}.open(t.Context())
	require.NoError(t, err)
	t.Cleanup(release)
	b := &bench{o: Options{Time: 50 * time.Millisecond}, met: map[*Strategy]map[string]*series{st: {}}}
	b.lockers = map[*Strategy]*locker.Client{st: l}
	for _, warm := range []bool{true, false} { // the first one connects
		require.NoError(t, b.round(t.Context(), st, warm))
	}
	require.LessOrEqual(t, b.met[st]["wide"].runs[0], wideGoroutines/0.04)
}

// TestCutMedian: a median that depends on waits that were cut off is marked, as the greatest run is.
func TestCutMedian(t *testing.T) {
	t.Parallel()
	figureOf := func(runs ...fought) *Figure {
		st := &Strategy{Name: "a", on: &contestant{kind: "setnx"}}
		b := &bench{met: map[*Strategy]map[string]*series{st: {}}}
		for _, f := range runs {
			f.changes = fewestChanges
			b.addFight(st, &f, load{commands: -1, cpu: -1})
		}
		b.tell(&Result{})
		return st.Figures["longest"]
	}
	require.Equal(t, "200 (100 to 300; 90)", figureOf(fought{longest: 100}, fought{longest: 200}, fought{longest: 300}).text())
	require.Equal(t, "200 (100 to ≥ 300; 90)", figureOf(fought{longest: 100}, fought{longest: 200}, fought{longest: 300, cutLongest: true}).text())
	require.Equal(t, "≥ 200 (100 to 300; 90)", figureOf(fought{longest: 100, cutLongest: true}, fought{longest: 200}, fought{longest: 300}).text())
	require.Equal(t, "≥ 200 (100 to 300)", figureOf(fought{longest: 100}, fought{longest: 200, cutLongest: true}, fought{longest: 300}).short())
}

// TestOneError: goroutines that fail for the same reason have one error.
func TestOneError(t *testing.T) {
	t.Parallel()
	l, err := memory.New()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, _, err = pairs(t.Context(), l, wideGoroutines, time.Second)
	require.ErrorIs(t, err, locker.ErrClosed)
	require.NotContains(t, err.Error(), "\n")
}

// TestHoldIsInterrupted: after Ctrl-C the locks that are held for a figure are given back together. One after another
// they would take 20 ms each.
func TestHoldIsInterrupted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	st := &Strategy{Name: "far", on: &contestant{kind: "setnx", url: "setnx+redis://" + far(t, server.Addr()), meter: &meter{}}}
	b := &bench{met: map[*Strategy]map[string]*series{st: {}}}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	last := fmt.Sprint("m:held ", held-1)
	ended := make(chan error, 1)
	go func() { ended <- b.hold(ctx, st, &stores{mark: "m:"}) }()
	pace.Eventually(t, time.Minute, "all are held", func() bool { return rdb.Exists(t.Context(), last).Val() == 1 })
	interrupt()
	start := time.Now()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Less(t, time.Since(start), held*20*time.Millisecond)
	require.Zero(t, rdb.Exists(t.Context(), "m:held 0", last).Val())
}
