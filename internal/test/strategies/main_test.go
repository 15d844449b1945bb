// Package strategies tests what holds for several strategies at once.
package strategies

import (
	"testing"

	"github.com/distlock/locker/internal/test/redistest/leaktest"
)

// After the tests nothing that they opened runs.
func TestMain(m *testing.M) {
	// go-redis looks for a server that has refused connections, and ends that within a
	// second after its client was closed. A client that asks Sentinels keeps the other one when it is closed before its first
	// command: that of the user's whose Locker has made a private client of it.
	leaktest.Main(m, "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial",
		"github.com/redis/go-redis/v9/maintnotifications.(*CircuitBreakerManager).cleanupLoop")
}
