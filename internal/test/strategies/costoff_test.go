package strategies

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// info returns the integers of some sections of the server's INFO. Those of a command's line are its calls.
func info(t *testing.T, rdb redis.UniversalClient) map[string]int {
	t.Helper()
	all := make(map[string]int)
	for _, section := range []string{"commandstats", "stats"} {
		text, err := rdb.Info(t.Context(), section).Result()
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			if n, err := strconv.Atoi(value); err == nil {
				all[name] = n
			}
		}
	}
	return all
}

// fencePeriod is that of fence.lua, in tokens, which are microseconds. The first grant in a period writes the counter by SET,
// the others by INCRBY: a run of this test can meet the end of one.
const fencePeriod = 60e6

// cost counts what a Lock and an Unlock of a free key send and allocate.
type cost struct {
	commands string // by name, those of scripts included
	bytes    int    // to the server
	allocs   int
}

// Without WithSticky, WithLossDetection and ReleaseRequested a pair costs no command, byte, connection or allocation
// more than before these came: commit d9342fc has the same commands and bytes, and 16, 17 and 22 allocations. The ids
// of the claims have three digits behind the UUID throughout. A script's command counts in INFO as one of a client
// does.
func TestOffCostsNothing(t *testing.T) {
	for name, want := range map[string]cost{
		"setnx":         {"del 1, evalsha 2, get 2, incrby 1, pttl 1, set 1, time 1", 296, 16},
		"hashreentrant": {"del 1, evalsha 2, exists 1, get 1, hget 2, hset 1, incrby 1, pexpire 1, publish 1, time 1", 296, 16},
		"blpop":         {"del 1, evalsha 2, exists 2, get 1, hget 2, hset 1, incrby 1, pexpire 1, publish 1, time 1", 365, 21},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			observer := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr})
			defer observer.Close()
			l, err := onOneRedis[name](rdb)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			pairs := func(n int) (last int64) {
				for range n {
					lease, err := l.Lock(t.Context(), "k")
					require.NoError(t, err)
					last = lease.Token()
					require.NoError(t, lease.Unlock(t.Context()))
				}
				return last
			}
			first := pairs(150) // connections are made, and scripts become known
			info(t, observer)
			empty := info(t, observer)
			before := info(t, observer)
			const n = 800
			var a, b runtime.MemStats
			runtime.ReadMemStats(&a)
			last := pairs(n)
			runtime.ReadMemStats(&b)
			after := info(t, observer)
			periods := int(last/fencePeriod - first/fencePeriod)
			after["cmdstat_set"] -= periods
			after["cmdstat_incrby"] += periods
			spent := func(what string) int { return after[what] - before[what] - (before[what] - empty[what]) } // without INFO's own
			var commands []string
			for _, name := range slices.Sorted(maps.Keys(after)) {
				if c, ok := strings.CutPrefix(name, "cmdstat_"); ok && spent(name) > 0 {
					commands = append(commands, fmt.Sprintf("%s %.4g", c, float64(spent(name))/n))
				}
			}
			mallocs := float64(b.Mallocs-a.Mallocs) / n
			got := cost{strings.Join(commands, ", "), spent("total_net_input_bytes") / n, int(mallocs)}
			t.Logf("%s: %+v, %.2f allocations", name, got, mallocs)
			require.Zero(t, spent("total_connections_received"))
			require.Equal(t, want.commands, got.commands)
			require.Equal(t, want.bytes, got.bytes, "bytes")
			require.LessOrEqual(t, float64(got.allocs), float64(want.allocs)*costSlack)
		})
	}
}
