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
	goleak.VerifyTestMain(m, opts...)
}
