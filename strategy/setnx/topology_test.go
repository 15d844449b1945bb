package setnx_test

import (
	"testing"

	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/strategy/setnx"
)

func on(topology redisconformance.Topology) redisconformance.Strategy {
	return redisconformance.Strategy{
		Name:      "setnx",
		New:       setnx.New,
		NewDriver: setnx.NewDriver,
		Permits:   true,
		Topology:  topology,
	}
}

func TestConformanceOnSentinel(t *testing.T) {
	redisconformance.Run(t, on(redisconformance.Sentinel))
}

func TestConformanceOnCluster(t *testing.T) { redisconformance.Run(t, on(redisconformance.Cluster)) }

func TestAccess(t *testing.T) { redisconformance.RunAccess(t, on(redisconformance.Single)) }
