package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
	"github.com/distlock/locker/strategy/memory"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestOnceATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		require.Zero(t, cli.Run(t.Context(), "scheduler", run, []string{"-url", "memory://" + rand.Text()}, &out, &errs), "%s%s", &out, &errs)
		var table [][]string
		for line := range strings.Lines(out.String()) {
			table = append(table, strings.Fields(line))
		}
		require.Equal(t, []string{"no", "lock", "10", "30", "0", "10", "ran", "again,", "as", "expected"}, table[1])
		require.Equal(t, []string{"unlocked", "at", "once", "10", "30", "0", "10", "ran", "again,", "as", "expected"}, table[2])
		require.Equal(t, []string{"a", "key", "for", "a", "tick", "10", "10", "0", "0", "ok"}, table[3])
	})
}

// A tick that was done is no loss when its TTL ends: nothing that an alert looks at.
func TestDoneIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, lost := memory.NewStore(), 0
		l, err := store.New(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventLost {
				lost++
			}
		})))
		require.NoError(t, err)
		require.NoError(t, runOnce(t.Context(), l, "1", func(context.Context) error { return nil }))
		require.ErrorIs(t, runOnce(t.Context(), l, "1", func(context.Context) error { return nil }), locker.ErrNotAcquired)
		time.Sleep(2 * maxLate)       // on the bubble's clock: the TTL is over
		require.NoError(t, l.Close()) // delivers the events
		require.Zero(t, lost)
	})
}

func TestOnRedis(t *testing.T) {
	url := strings.Replace(redistest.Shared(t).URL(), "redis://", "setnx+redis://", 1)
	var out, errs bytes.Buffer
	args := []string{"-url", url, "-every", "20ms", "-instances", "5"}
	require.Zero(t, cli.Run(t.Context(), "scheduler", run, args, &out, &errs), "%s%s", &out, &errs)
}

func TestFailedTickIsLeftToOthers(t *testing.T) {
	l, err := memory.New()
	require.NoError(t, err)
	defer l.Close()
	failure := errors.New("no report today")
	failing := func(context.Context) error { return failure }
	require.ErrorIs(t, runOnce(t.Context(), l, "1", failing), failure)
	require.NoError(t, runOnce(t.Context(), l, "1", func(context.Context) error { return nil }))
	require.ErrorIs(t, runOnce(t.Context(), l, "1", failing), locker.ErrNotAcquired)
}

func TestInterrupt(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, errs bytes.Buffer
	require.Equal(t, 130, cli.Run(ctx, "scheduler", run, []string{"-every", "1h", "-url", "memory://" + t.Name()}, &out, &errs))
	require.Contains(t, errs.String(), "interrupted")
}

func TestRefusesNonsense(t *testing.T) {
	for want, args := range map[int][][]string{
		0: {{"-help"}},
		1: {{"-url", "nosuch://x"}},
		2: {{"-every", "1ms"}, {"-instances", "0"}, {"-ticks", "0"}, {"more"}, {"-nosuch"}},
	} {
		for _, args := range args {
			var out, errs bytes.Buffer
			require.Equal(t, want, cli.Run(t.Context(), "scheduler", run, args, &out, &errs), args)
			require.NotEmpty(t, errs.String(), args)
		}
	}
}
