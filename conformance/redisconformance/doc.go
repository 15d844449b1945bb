// Package redisconformance is the harness of the conformance suite for a strategy
// on one Redis deployment: a server, a master that Sentinels watch, or a cluster.
// It has real redis-server processes, which it kills and gets into trouble, proxies
// that lose replies and connections, and child processes. A strategy's test is then
//
//	func TestConformance(t *testing.T) {
//		s := redisconformance.Strategy{Name: "setnx", New: setnx.New}
//		conformance.Run(t, s.Harness, conformance.WithCases(s.Cases()...))
//	}
//
// and, for the cases with child processes,
//
//	func TestMain(m *testing.M) { redisconformance.Main(m, setnx.New) }
//
// Beside it [RunOn] tests what other topologies are most likely to break, slots that
// move and masters that fail over among it, and [RunAccess] the permissions that the
// strategy's documentation names.
//
// It needs a redis-server on the PATH.
package redisconformance
