// Package leaktest looks for goroutines that the tests of a package have left.
package leaktest

import (
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"go.uber.org/goleak"
)

// Main runs the tests of a package that starts servers, and exits. Functions that end by
// themselves a while after a test are named in ignored.
func Main(m *testing.M, ignored ...string) {
	var opts []goleak.Option
	for _, f := range append(redistest.Goroutines(), ignored...) {
		opts = append(opts, goleak.IgnoreAnyFunction(f))
	}
	goleak.VerifyTestMain(m, opts...)
}
