package blpop_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/blpop"
)

func on(topology redisconformance.Topology) redisconformance.Strategy {
	return redisconformance.Strategy{
		Name:        "blpop",
		New:         blpop.New,
		NewDriver:   blpop.NewDriver,
		StoredHolds: true,
		Permits:     true,
		Notified:    redistest.Blocks(),
		Fair:        true,
		Topology:    topology,
	}
}

func TestConformanceOnSentinel(t *testing.T) {
	redisconformance.Run(t, on(redisconformance.Sentinel))
}

func TestConformanceOnCluster(t *testing.T) { redisconformance.Run(t, on(redisconformance.Cluster)) }

func TestAccess(t *testing.T) { redisconformance.RunAccess(t, on(redisconformance.Single)) }
