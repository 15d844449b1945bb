package redlock_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/redlock"
)

func TestMain(m *testing.M) { redisconformance.MainQuorum(m, redlock.New) }

// The suite on five masters, in two halves: the cases that need faults, with a proxy
// before each node, and the others without.

func TestConformance(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name:   "redlock",
		New:    redlock.New,
		Direct: true,
	}.Harness)
}

func TestConformanceFaults(t *testing.T) {
	var names []string
	for _, c := range conformance.Cases() {
		if slices.Contains(c.Needs, conformance.NeedFaults) {
			names = append(names, regexp.QuoteMeta(c.Name))
		}
	}
	conformance.Run(t, redisconformance.Quorum{
		Name: "redlock under faults",
		New:  redlock.New,
	}.Harness, conformance.WithOnly("/("+strings.Join(names, "|")+")$"))
}

// The rules that a minority of nodes could break.
const basics = `^(exclusion|ownership|reentry|lease|fencing)/`

func TestConformanceTwoDead(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name:   "redlock, two of five dead",
		New:    redlock.New,
		Dead:   2,
		Direct: true,
	}.Harness, conformance.WithOnly(basics))
}

func TestConformanceOneBlackHoledOneDead(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name:       "redlock, one of five black-holed, one dead",
		New:        redlock.New,
		Dead:       1,
		BlackHoled: 1,
		Direct:     true,
	}.Harness, conformance.WithOnly(basics))
}
