package redlock_test

import (
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/redlock"
)

func TestMain(m *testing.M) { redisconformance.MainQuorum(m, redlock.New) }

func TestConformance(t *testing.T) {
	const elsewhere = "in TestConformanceDirect: not through five proxies"
	conformance.Run(t, redisconformance.Quorum{Name: "redlock", New: redlock.New}.Harness,
		conformance.WithSkip("ManyKeysAtOnce", elsewhere),
		conformance.WithSkip("ManyLeasesRenewed", elsewhere),
		conformance.WithSkip("LocalStateIsBounded", elsewhere))
}

// What a proxy's share of time and memory would hide.
func TestConformanceDirect(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name:   "redlock, without proxies",
		New:    redlock.New,
		Direct: true,
	}.Harness, conformance.WithOnly(`^load/Many|^hygiene/LocalStateIsBounded$`))
}

// The rules that a minority of nodes could break.
const basics = `^(exclusion|ownership|reentry|lease|fencing)/`

func TestConformanceTwoDead(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name: "redlock, two of five dead",
		New:  redlock.New,
		Dead: 2,
	}.Harness, conformance.WithOnly(basics))
}

func TestConformanceOneBlackHoledOneDead(t *testing.T) {
	conformance.Run(t, redisconformance.Quorum{
		Name:       "redlock, one of five black-holed, one dead",
		New:        redlock.New,
		Dead:       1,
		BlackHoled: 1,
	}.Harness, conformance.WithOnly(basics))
}
