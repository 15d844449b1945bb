package redlock_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/redlock"
)

func TestMain(m *testing.M) { redisconformance.MainQuorum(m, redlock.New) }

// Each lease is five, and each command five; on two processors, under the race
// detector and with hundreds of leases at a time, two seconds are soon gone.
var timing = conformance.Timing{TTL: 10 * time.Second}

// Everything, everywhere: `make conformance`. Otherwise the rules that a minority of
// nodes could break, on five masters.
var everything = os.Getenv("LOCKER_CONFORMANCE") == "all"

const basics = `^(exclusion|ownership|reentry|lease|fencing)/`

func run(t *testing.T, q redisconformance.Quorum, opts ...conformance.Option) {
	q.New, q.Timing = redlock.New, timing
	conformance.Run(t, q.Harness, opts...)
}

func TestConformance(t *testing.T) {
	q := redisconformance.Quorum{Name: "redlock", Direct: !everything}
	if everything {
		run(t, q)
	} else {
		run(t, q, conformance.WithOnly(basics))
	}
}

// The cases that need faults, with a proxy before each node.
func TestConformanceFaults(t *testing.T) {
	if !everything {
		return
	}
	var names []string
	for _, c := range conformance.Cases() {
		if slices.Contains(c.Needs, conformance.NeedFaults) {
			names = append(names, regexp.QuoteMeta(c.Name))
		}
	}
	run(t, redisconformance.Quorum{Name: "redlock under faults"}, conformance.WithOnly("/("+strings.Join(names, "|")+")$"))
}

func TestConformanceTwoDead(t *testing.T) {
	if everything {
		run(t, redisconformance.Quorum{Name: "redlock, two of five dead", Dead: 2})
	}
}

func TestConformanceOneBlackHoledOneDead(t *testing.T) {
	if everything {
		run(t, redisconformance.Quorum{Name: "redlock, one of five black-holed, one dead", Dead: 1, BlackHoled: 1})
	}
}
