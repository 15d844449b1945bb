package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/redistest/leaktest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestTheLeadershipPassesOn(t *testing.T) {
	server := redistest.Shared(t)
	for name, url := range map[string]string{
		"memory":        "memory://" + t.Name(),
		"hashreentrant": strings.Replace(server.URL(), "redis://", "hashreentrant+redis://", 1),
		"blpop":         strings.Replace(server.URL(), "redis://", "blpop+redis://", 1) + "?prefix=blpop:",
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			began := time.Now()
			require.Zero(t, cli.Run(t.Context(), "leader", run, []string{"-every", "10ms", "-url", url}, &out, &errs), "%s%s", &out, &errs)
			require.Less(t, time.Since(began), 20*time.Second)
			tokens := regexp.MustCompile(`elected, with token \d+`).FindAllString(out.String(), -1)
			require.GreaterOrEqual(t, len(tokens), 3, &out)
			require.IsIncreasing(t, tokens) // of one length
			require.Contains(t, out.String(), "the ledger refuses the write")
			require.Contains(t, out.String(), "lock lost")
			require.Contains(t, out.String(), "this is the end")
		})
	}
}

// stopper stops the show when it has said something.
type stopper struct {
	bytes.Buffer
	at   string
	stop func()
}

func (s *stopper) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(s.at)) {
		s.stop()
	}
	return s.Buffer.Write(b)
}

func TestInterrupt(t *testing.T) {
	for _, at := range []string{"elected", "is paused", "wakes up", "crashes"} {
		ctx, stop := context.WithCancel(t.Context())
		var errs bytes.Buffer
		out := &stopper{at: at, stop: stop}
		require.Equal(t, 130, cli.Run(ctx, "leader", run, []string{"-every", "10ms", "-url", "memory://" + t.Name()}, out, &errs), at)
		require.Contains(t, errs.String(), "interrupted")
		require.NotContains(t, out.String(), "this is the end")
	}
}

func TestLedger(t *testing.T) {
	over := make(chan struct{})
	close(over)
	l := &ledger{over: over, tokens: fence.NewMemory()}
	require.NoError(t, l.write("ann", 1))
	require.NoError(t, l.write("ann", 1))
	require.NoError(t, l.write("bob", 2))
	require.ErrorIs(t, l.write("ann", 1), fence.ErrStale)
	require.NoError(t, l.write("bob", 2))
}

func TestRefusesNonsense(t *testing.T) {
	for want, args := range map[int][][]string{
		0: {{"-help"}},
		1: {{"-url", "nosuch://x"}},
		2: {{"-every", "0"}, {"more"}, {"-nosuch"}},
	} {
		for _, args := range args {
			var out, errs bytes.Buffer
			require.Equal(t, want, cli.Run(t.Context(), "leader", run, args, &out, &errs), args)
			require.NotEmpty(t, errs.String(), args)
		}
	}
}
