package redisconformance

import (
	"slices"

	"github.com/distlock/locker/conformance"
)

// Cases are what holds beyond the suite where Redis is more than one server; for
// [conformance.WithCases]. They run on a harness of [Strategy.Harness] only.
func (s Strategy) Cases() []conformance.Case {
	switch s.Topology {
	case Sentinel:
		return failoverCases
	case Cluster:
		return slices.Concat(failoverCases)
	}
	return nil
}
