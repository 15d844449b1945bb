package compare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	Serve()
	os.Exit(serverstest.Main(m))
}

// some are cases of several kinds: short ones, one with processes, one that looks at
// all keys.
const some = "^(exclusion/AcquireRelease|waiting/FIFOAcrossLockers|wake-ups/NotifiedWake|failure/AcquireReplyLost|processes/ProcessesExclude|hygiene/KeysEndWithLocks|fencing/TokenAfterDataLoss)$"

func quiet(o Options) Options {
	o.Quick, o.Only, o.Runs, o.Time, o.Seed = true, some, cmp.Or(o.Runs, 3), 20*time.Millisecond, 1
	o.Begin = func(string) {}
	if o.Suite == nil {
		o.Suite = func(string, int, int) {}
	}
	return o
}

func TestCompare(t *testing.T) {
	t.Parallel()
	serverstest.Etcd(t)
	r, err := Run(t.Context(), quiet(Options{}))
	require.NoError(t, err)
	require.Empty(t, r.Failures())
	require.False(t, r.Failed())
	require.Subset(t, Names(), r.names())
	require.Subset(t, r.names(), []string{"setnx", "hashreentrant", "blpop", "redlock", "memory"})
	by := make(map[string]*Strategy)
	for _, s := range r.Strategies {
		by[s.Name] = s
		if s.on.suite {
			require.GreaterOrEqual(t, s.Suite.Passed, 4, s.Name)
		}
		require.Positive(t, s.Figures["pair"].Greatest, s.Name) // on a busy machine a run of 20 ms may come to none
		require.Len(t, s.Figures["wide"].Runs, 3, s.Name)
		if s.Name != "memory" {
			require.Positive(t, s.Figures["longest"].Greatest, s.Name)
			if s.Figures["grants"].Greatest == 0 { // a busy machine may not come to it in so short a time: then all waited
				require.True(t, s.Figures["longest"].AtLeast, s.Name)
			}
		}
	}
	require.Greater(t, by["setnx"].Figures["waiting"].Median, by["blpop"].Figures["waiting"].Median, "one polls, the other is woken")
	meet := map[Need][]string{}
	for _, a := range r.Advice {
		meet[a.Need] = a.Meet
		require.Len(t, a.Prices, len(a.Meet))
		if len(a.Meet) > 1 {
			require.Empty(t, a.Best, "three runs rank nothing")
		}
	}
	require.Contains(t, meet["order"], "blpop")
	require.NotContains(t, meet["order"], "setnx")
	require.NotContains(t, meet["contention"], "memory")
	require.Contains(t, meet["failover"], "redlock")
	var page, printed bytes.Buffer
	require.NoError(t, r.HTML(&page))
	require.GreaterOrEqual(t, strings.Count(page.String(), "<figure"), 8)
	require.NoError(t, json.NewEncoder(&printed).Encode(r))
	require.Contains(t, printed.String(), `"schema":2`)
	require.Regexp(t, "All of setnx, hashreentrant, blpop, redlock pass: mutual exclusion", r.Markdown())
	require.NotContains(t, r.Markdown(), "| mutual exclusion |", "where all pass nothing differs")
	for _, s := range r.Strategies {
		if s.Name == "memory" {
			continue
		}
		require.NotNil(t, s.Second, s.Name)
		require.Len(t, s.Faults, len(faultKinds), s.Name)
		for i, f := range s.Faults {
			require.Equal(t, faultKinds[i], f.Kind)
			require.Zero(t, f.OverlapMS, "%s: %+v", s.Name, f)
			require.GreaterOrEqual(t, f.BackMS, float64(faultLasts.Milliseconds()), "%s: %+v", s.Name, f)
			require.Positive(t, f.ToldMS, s.Name)
			require.Greater(t, f.GrantMS, f.ToldMS, s.Name)
		}
	}
	for _, secret := range []string{"app:", "secret"} {
		require.NotContains(t, printed.String()+page.String()+r.Text(), secret)
	}
}

// TestItself: a strategy that is compared with itself is neither better nor worse.
func TestItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := quiet(Options{URLs: []string{"setnx+" + server.URL(), "setnx+" + server.URL()}, Runs: runsToRank, NoSuite: true})
	o.Time = 60 * time.Millisecond // beside the other tests a pair took more than 20 ms, and too few were made to compare
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"setnx", "setnx#2"}, r.names())
	require.Empty(t, r.Failures())
	for _, a := range r.Advice {
		require.Empty(t, a.Best, "%s: %s", a.Need, a.Because)
		if len(a.Weighs) > 0 && len(a.Meet) > 0 {
			require.Regexp(t, "^no difference", a.Because)
		}
	}
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
		r, err := Run(ctx, quiet(Options{URLs: urls[:1], Nodes: urls, Strategies: []string{"blpop", "redlock"}, Runs: 1, Suite: func(string, int, int) {
			if interrupted {
				interrupt()
			}
		}}))
		if interrupted {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
			require.Empty(t, r.Failures())
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

// TestCandidatesAreWhatTheSuiteExpects: the suite leaves out the cases of permits for a strategy that does not claim them,
// and expects of it that readers of other Lockers wait.
func TestCandidatesAreWhatTheSuiteExpects(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for _, c := range candidates {
		if c.single.New == nil {
			continue
		}
		l, err := c.single.New(rdb)
		require.NoError(t, err)
		_, err = locker.NewSemaphore(l, "k", 2)
		require.Equal(t, c.single.Permits, err == nil, "%s: %v", c.name, err)
		require.NoError(t, l.Close())
	}
}

// TestClaimsOnKeyDB: waiters of blpop poll on KeyDB 6.3, and are not blamed for it.
func TestClaimsOnKeyDB(t *testing.T) {
	t.Parallel()
	for _, c := range candidates {
		for version, notified := range map[string]bool{"6.2.16": true, "6.3.4": c.name != "blpop", "7.0.15": true, "": true} {
			require.Equal(t, c.single.Notified && notified, c.on(version).Notified, "%s on %q", c.name, version)
		}
	}
}

func TestWrongServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		says string
	}{
		"nobody there":       {Options{URLs: []string{"redis://secret:pa55@127.0.0.1:1"}}, "127.0.0.1:1: dial tcp"},
		"a cluster":          {Options{URLs: []string{"setnx+redis-cluster://h"}}, "a single server"},
		"a slash missing":    {Options{URLs: []string{"redis:/user:pa55@h:1"}}, "a single server"},
		"too few nodes":      {Options{Strategies: []string{"redlock"}, URLs: []string{redistest.Shared(t).URL()}}, "three servers"},
		"one server thrice":  {Options{Nodes: []string{redistest.Shared(t).URL(), redistest.Shared(t).URL(), redistest.Shared(t).URL()}}, "the same server"},
		"no store for one":   {Options{Strategies: []string{"setnx", "postgres"}, URLs: []string{redistest.Shared(t).URL()}}, "postgres"},
		"no memory of yours": {Options{Strategies: []string{"memory", "setnx"}, URLs: []string{redistest.Shared(t).URL()}}, "memory"},
		"unknown strategy":   {Options{Strategies: []string{"none"}, URLs: []string{redistest.Shared(t).URL()}}, `"none"`},
	} {
		_, err := Run(t.Context(), quiet(c.o))
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "pa55", name)
	}
}

// TestOnlyTheseCases: the cases of Only run and no others, on each of the harnesses of redlock.
func TestOnlyTheseCases(t *testing.T) {
	t.Parallel()
	s, err := (&stores{mark: "m:", stop: func() {}}).launch(t.Context())
	require.NoError(t, err)
	defer s.end()
	suite, err := s.suite(t.Context(), "redlock", quiet(Options{}), func(int, bool) {})
	require.NoError(t, err)
	require.LessOrEqual(t, suite.Passed+suite.Failed, strings.Count(some, "|")+1)
}

// TestURLOfOneStrategy: a URL that names a strategy is for this strategy only, also beside --nodes. The suite does not
// run on it, and the report shows this.
func TestURLOfOneStrategy(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 4 {
		urls = append(urls, redistest.Start(t).URL())
	}
	s := &stores{mark: "m:", stop: func() {}}
	defer s.end()
	require.NoError(t, s.find(t.Context(), []string{"setnx+" + urls[0], "blpop+" + urls[0]}, urls[1:]))
	all, err := s.contestants(t.Context(), quiet(Options{}))
	require.NoError(t, err)
	r := &Result{}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
		r.Strategies = append(r.Strategies, &Strategy{Name: c.name, on: c})
	}
	require.ElementsMatch(t, []string{"redlock", "setnx", "blpop"}, names)
	r.limits(s, Options{})
	require.NotContains(t, strings.Join(r.Limits, " "), "The conformance suite ran")
	r.Strategies[0].Suite = &Suite{}
	r.limits(s, Options{})
	require.Contains(t, strings.Join(r.Limits, " "), "The conformance suite ran for redlock;")
}

// TestOneLine: an error of many lines is one line of the report.
func TestOneLine(t *testing.T) {
	t.Parallel()
	r := sample(t)
	r.Strategies[0].fail(errors.Join(errors.New("one"), errors.New("two"), errors.New("")))
	require.Equal(t, []string{"setnx: one; two"}, r.Failures())
}

// TestLoadNotKnown: a system that has no load average has no load of -1.
func TestLoadNotKnown(t *testing.T) {
	t.Parallel()
	r := sample(t)
	r.Load.Before, r.Load.After = -1, -1
	require.NotContains(t, r.Text(), "-1.0")
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
		require.Regexp(t, `1 of \d+ fail`, text)
		require.Contains(t, text, "blpop fails exclusion/NeverTwoInside")
		require.Contains(t, text, "seen: two were inside")
		require.NotRegexp(t, `order.*blpop:`, text)
	}
	require.NotContains(t, r.Text(), "busy")
	r.Load.Busy = "its load was 40.0"
	require.Contains(t, r.Text(), "compare again when it is quiet")
	r.Strategies[0].Suite, r.Strategies[0].Figures = nil, nil
	r.Strategies[0].fail(errors.New("out of luck"))
	require.Contains(t, r.Text(), "setnx: out of luck")
	require.NoError(t, r.HTML(new(bytes.Buffer)))
}
