// Package redisconformance is the harness of the conformance suite for a strategy
// on one Redis deployment: a server, a master that Sentinels watch, or a cluster.
// It starts real redis-server processes, which it kills and gets into trouble, proxies
// that lose replies and connections, and child processes. A strategy's test is then
//
//	func TestConformance(t *testing.T) {
//		redisconformance.Run(t, redisconformance.Strategy{Name: "setnx", New: setnx.New})
//	}
//
// and, for the cases with child processes,
//
//	func TestMain(m *testing.M) { redisconformance.Main(m, setnx.New) }
//
// On other topologies Run tests what these are most likely to break, such as slots that move and
// masters that fail over; [RunAccess] tests the permissions that the strategy's documentation
// names.
//
// It needs a redis-server on the PATH.
package redisconformance
