package hashreentrant_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/hashreentrant"
)

func on(topology redisconformance.Topology) redisconformance.Strategy {
	return redisconformance.Strategy{
		Name:        "hashreentrant",
		New:         hashreentrant.New,
		NewDriver:   hashreentrant.NewDriver,
		StoredHolds: true,
		Permits:     true,
		Notified:    true,
		Topology:    topology,
	}
}

func TestConformanceOnSentinel(t *testing.T) {
	redisconformance.Run(t, on(redisconformance.Sentinel))
}

func TestConformanceOnCluster(t *testing.T) { redisconformance.Run(t, on(redisconformance.Cluster)) }

func TestAccess(t *testing.T) { redisconformance.RunAccess(t, on(redisconformance.Single)) }
