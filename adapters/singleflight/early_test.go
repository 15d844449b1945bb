package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/adapters/singleflight"
	"github.com/distlock/locker/strategy/memory"
)

// Shortly before its end one caller computes a value anew; the others read the present one and do not wait.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, results := memory.NewStore(), singleflight.NewMemory()
		const always = 1e12
		opts := []singleflight.Option{singleflight.WithTTL(time.Hour), singleflight.WithEarly(always)}
		a, b := newGroup(t, store, results, opts...), newGroup(t, store, results, opts...)
		var n atomic.Int32
		compute := func(context.Context) ([]byte, error) {
			time.Sleep(time.Second) // on the bubble's clock: the computation takes so long
			return fmt.Append(nil, n.Add(1)), nil
		}
		do := func(g *singleflight.Group, fn singleflight.Func) string {
			value, err := g.Do(t.Context(), "k", fn)
			require.NoError(t, err)
			return string(value)
		}
		require.Equal(t, "1", do(a, compute))
		anew := make(chan string)
		go func() { anew <- do(a, compute) }()
		synctest.Wait()
		began := time.Now()
		require.Equal(t, "1", do(b, compute), "a computes it anew")
		require.Zero(t, time.Since(began))
		require.Equal(t, "2", <-anew)
		require.Equal(t, "2", do(b, func(context.Context) ([]byte, error) { return nil, errors.New("no") }), "the value is valid")

		never := newGroup(t, store, results, singleflight.WithEarly(0))
		require.Equal(t, "2", do(never, compute))
	})
}

// So do the other callers in the process of the one that computes.
func TestEarlyInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory.NewStore(), singleflight.NewMemory(), singleflight.WithTTL(time.Hour), singleflight.WithEarly(1e12))
		n := 0
		do := func() string {
			value, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
				time.Sleep(time.Second) // on the bubble's clock: the computation takes so long
				n++
				return fmt.Append(nil, n), nil
			})
			if err != nil {
				t.Error(err)
			}
			return string(value)
		}
		require.Equal(t, "1", do())
		anew := make(chan string)
		go func() { anew <- do() }()
		synctest.Wait()
		began := time.Now()
		for range 3 {
			require.Equal(t, "1", do())
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, "2", <-anew)
	})
}

// With the default, values are computed anew before they run out, and seldom much earlier.
func TestEarlyByChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory.NewStore(), singleflight.NewMemory(), singleflight.WithTTL(time.Minute))
		computed, last := 0, time.Time{}
		for range 10_000 { // a call each 100 ms, for 1,000 s
			_, err := g.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
				computed++
				time.Sleep(time.Second) // on the bubble's clock: the computation takes so long
				last = time.Now()
				return nil, nil
			})
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(last), time.Minute)
			time.Sleep(100 * time.Millisecond) // on the bubble's clock
		}
		require.Greater(t, computed, 15)
		require.Less(t, computed, 30)
	})
}
