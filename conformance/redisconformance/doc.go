// Package redisconformance is the harness of the conformance suite for a strategy
// on a single Redis: real redis-server processes, a proxy that loses replies and
// connections, and child processes. A strategy's test is then
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, redisconformance.Strategy{
//			Name: "setnx",
//			New:  setnx.New,
//		}.Harness)
//	}
//
// and, for the cases with child processes,
//
//	func TestMain(m *testing.M) { redisconformance.Main(m, setnx.New) }
//
// It needs a redis-server on the PATH.
package redisconformance
