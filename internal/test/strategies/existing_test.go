package strategies

import (
	"context"
	"os"
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/require"
)

// TestSuiteOnAServerOfOthers: the suite uses keys with its mark only, and leaves what
// others have there as it is.
func TestSuiteOnAServerOfOthers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "others", "data", 0).Err())
	srv.AddUser(t, "suite", "secret", "~*mark:*", "~locker:inbox:*", "&*", "+@all", "-@dangerous", "-script")
	as := srv.Options()
	as.Username, as.Password = "suite", "secret"
	s := redisconformance.Strategy{Name: "blpop", New: blpop.New, StoredHolds: true, Permits: true, Notified: redistest.Blocks(), Fair: true, Server: as, Mark: "mark:"}
	groups, least := "fencing|keys|admin", 25
	if os.Getenv("LOCKER_CONFORMANCE") == "all" {
		groups, least = groups+"|exclusion|failure|hygiene|wake-ups", 60
	}
	report, err := conformance.Check(context.Background(), s.Harness, nil, conformance.WithoutSlow(), conformance.WithParallel(8),
		conformance.WithOnly("^("+groups+")/"))
	require.NoError(t, err)
	t.Log(report)
	require.False(t, report.Failed())
	passed := 0
	for _, r := range report.Results {
		if r.Outcome == conformance.Passed {
			passed++
		}
	}
	require.Greater(t, passed, least)
	require.Equal(t, "data", rdb.Get(t.Context(), "others").Val())
}
