package redlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { redisconformance.MainQuorum(m, redlock.New) }

// Each lease is five, and each command five: the cases of package load, which are
// part of everything, have hundreds of leases at a time.
var timing = conformance.Timing{TTL: 4 * time.Second, ShortTTL: 2 * time.Second, RenewEvery: 250 * time.Millisecond}

// Everything, everywhere: `make conformance`. Otherwise the rules that a minority of
// nodes could break, on five masters.
var everything = os.Getenv("LOCKER_CONFORMANCE") == "all"

func patient(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	return redlock.New(rdbs, append([]locker.Option{redlock.WithNodeTimeout(10 * time.Second)}, opts...)...)
}

const basics = `^(exclusion|lease|fencing|commands|signals)/`

func run(t *testing.T, q redisconformance.Quorum, opts ...conformance.Option) {
	t.Helper()
	q.New, q.NewDriver, q.Timing = redlock.New, redlock.NewDriver, timing
	if q.Direct && q.Dead+q.BlackHoled == 0 { // no node is to be absent, however slow the machine is
		q.New = patient
	}
	if everything {
		q.Timing.TTL = 10 * time.Second
		opts = append(opts, conformance.WithLockerCases())
	}
	conformance.Run(t, q.Harness, opts...)
}

// whole is the suite in two parts: what needs no faults without proxies, and the rest
// with one before each node.
func whole(t *testing.T, q redisconformance.Quorum) {
	t.Helper()
	if !everything {
		return
	}
	var faults []string
	for _, c := range conformance.Cases() {
		if c.Needs.Faults {
			faults = append(faults, regexp.QuoteMeta(c.Name))
		}
	}
	t.Run("direct", func(t *testing.T) {
		q := q
		q.Direct = true
		run(t, q)
	})
	t.Run("faults", func(t *testing.T) {
		q := q
		q.Name += ", faults"
		run(t, q, conformance.WithOnly("/("+strings.Join(faults, "|")+")$"))
	})
}

func TestConformance(t *testing.T) {
	q := redisconformance.Quorum{Name: "redlock"}
	if everything {
		whole(t, q)
		return
	}
	q.Direct = true
	run(t, q, conformance.WithOnly(basics))
}

func TestConformanceTwoDead(t *testing.T) {
	whole(t, redisconformance.Quorum{Name: "redlock, two of five dead", Dead: 2})
}

func TestConformanceOneBlackHoledOneDead(t *testing.T) {
	whole(t, redisconformance.Quorum{Name: "redlock, one of five black-holed, one dead", Dead: 1, BlackHoled: 1})
}
