// Package strategies tests what holds for several strategies at once.
package strategies

import (
	"testing"

	"github.com/distlock/locker/internal/test/redistest/leaktest"
)

// After the tests nothing that they opened runs.
func TestMain(m *testing.M) {
	// go-redis looks for a server that has refused connections, and ends that within a
	// second after its client was closed.
	leaktest.Main(m, "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
