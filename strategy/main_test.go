package strategy

import (
	"testing"

	"github.com/distlock/locker/internal/redistest"
	"go.uber.org/goleak"
)

// After the releases nothing that was opened runs.
func TestMain(m *testing.M) {
	var opts []goleak.Option
	for _, f := range redistest.Goroutines() {
		opts = append(opts, goleak.IgnoreAnyFunction(f))
	}
	// go-redis looks for a server that has refused connections, and ends that within a
	// second after its client was closed.
	opts = append(opts, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
	goleak.VerifyTestMain(m, opts...)
}
