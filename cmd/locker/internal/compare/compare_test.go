package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	Serve()
	os.Exit(m.Run())
}

// some are cases of several kinds: short ones, one with processes, one that looks at
// all keys.
const some = "^(exclusion/AcquireRelease|waiting/FIFOAcrossLockers|wake-ups/NotifiedWake|failure/AcquireReplyLost|processes/ProcessesExclude|hygiene/KeysEndWithLocks|fencing/TokenAfterDataLoss)$"

func quiet(o Options) Options {
	o.Quick, o.Only, o.Rounds = true, some, 1
	o.Begin = func(string) {}
	if o.Suite == nil {
		o.Suite = func(string, int, int) {}
	}
	return o
}

func TestCompare(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), quiet(Options{}))
	require.NoError(t, err)
	require.Empty(t, r.failures())
	require.False(t, r.Failed())
	require.Equal(t, Names(), r.names())
	for _, s := range r.Strategies {
		require.GreaterOrEqual(t, s.Suite.Passed, 4, s.Name)
		require.Positive(t, s.Bench.Solo.PerS, s.Name)
		require.Positive(t, s.Bench.Wide.P99US, s.Name)
		require.Positive(t, s.Bench.Contended.GrantsPerS, s.Name)
		require.NotNil(t, s.Bench.WaitingCommandsPerS, s.Name)
	}
	blpop, setnx := r.Strategies[2].Bench, r.Strategies[0].Bench
	require.Greater(t, *setnx.WaitingCommandsPerS, *blpop.WaitingCommandsPerS, "one polls, the other is woken")
	advice := map[Need]string{}
	for _, a := range r.Advice {
		advice[a.Need] = a.Strategy
	}
	require.Equal(t, "blpop", advice["order"])
	require.Equal(t, "setnx", advice["interop"])
	require.Equal(t, "redlock", advice["failover"])
	var page, printed bytes.Buffer
	require.NoError(t, r.HTML(&page))
	require.Equal(t, 8, strings.Count(page.String(), "<figure"))
	require.NoError(t, json.NewEncoder(&printed).Encode(r))
	require.Contains(t, r.Markdown(), "| mutual exclusion | 1 pass | 1 pass | 1 pass | 1 pass |")
}

// TestServersOfOthers: on servers that are there nothing is left behind, and what others
// have there is untouched, when it ends and when it is interrupted.
func TestServersOfOthers(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		var servers []*redis.Client
		var urls []string
		for range 3 {
			s := redistest.Start(t)
			urls, servers = append(urls, s.URL()), append(servers, s.Client(t))
			require.NoError(t, servers[len(servers)-1].Set(t.Context(), "others", "data", 0).Err())
		}
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		r, err := Run(ctx, quiet(Options{URL: "blpop+" + urls[0], Nodes: urls, Strategies: []string{"blpop", "redlock"}, Suite: func(string, int, int) {
			if interrupted {
				interrupt()
			}
		}}))
		if interrupted {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
			require.Empty(t, r.failures())
			require.Positive(t, r.Strategies[1].Suite.Passed)
		}
		for _, rdb := range servers {
			pace.Eventually(t, 30*time.Second, "nothing is left", func() bool {
				keys, err := rdb.Keys(t.Context(), "*").Result()
				require.NoError(t, err)
				return len(keys) == 1 // but inboxes, for five seconds
			})
			require.Equal(t, "data", rdb.Get(t.Context(), "others").Val())
		}
	}
}

func TestWrongServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		says string
	}{
		"nobody there":      {Options{URL: "redis://secret:pa55@127.0.0.1:1"}, "127.0.0.1:1: dial tcp"},
		"a cluster":         {Options{URL: "setnx+redis-cluster://h"}, "a single server"},
		"a slash missing":   {Options{URL: "redis:/user:pa55@h:1"}, "a single server"},
		"too few nodes":     {Options{Strategies: []string{"redlock"}, URL: redistest.Shared(t).URL()}, "three servers"},
		"one server thrice": {Options{Nodes: []string{redistest.Shared(t).URL(), redistest.Shared(t).URL(), redistest.Shared(t).URL()}}, "the same server"},
		"unknown strategy":  {Options{Strategies: []string{"none"}, URL: redistest.Shared(t).URL()}, `"none"`},
	} {
		_, err := Run(t.Context(), quiet(c.o))
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "pa55", name)
	}
}

// TestFailuresAreTold: a strategy that fails a case is not advised.
func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	r := sample(t)
	r.Advice = nil
	for _, s := range r.Strategies {
		if s.Name == "blpop" {
			for i := range s.Suite.Results {
				if s.Suite.Results[i].Name == "NeverTwoInside" {
					s.Suite.Results[i].Outcome, s.Suite.Results[i].Why = conformance.Failed, "two were inside\nmore"
				}
			}
			s.Suite.Failed = 1
		}
	}
	r.advise()
	require.True(t, r.Failed())
	for _, text := range []string{r.Text(), r.Markdown()} {
		require.Contains(t, text, "1 of 12 fail")
		require.Contains(t, text, "blpop fails exclusion/NeverTwoInside")
		require.Contains(t, text, "seen: two were inside")
		require.Contains(t, text, "cases of the suite failed for blpop")
	}
	r.Strategies[0].Suite, r.Strategies[0].Bench = nil, nil
	r.Strategies[0].fail(errors.New("out of luck"))
	require.Contains(t, r.Text(), "setnx: out of luck")
	require.NoError(t, r.HTML(new(bytes.Buffer)))
}
