package conformance

import (
	"flag"
	"os"
	"runtime"
	"strconv"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// Main does the work of TestMain in packages that run the suite: it runs the tests, or, in a
// process that a case has started, does what the case asks, with a Locker made by newLocker of
// the harness's ChildSpec. newLocker may be nil where no harness is a [ChildMaker].
//
//	func TestMain(m *testing.M) { conformance.Main(m, newLocker) }
//
// As most cases wait most of the time, it lets eight of them run in parallel for
// each processor, 16 at most, unless -parallel is given.
func Main(m interface{ Run() int }, newLocker func(spec string, opts ...locker.Option) (locker.Locker, error)) {
	suite.ServeChild(newLocker)
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(parallelOn(runtime.GOMAXPROCS(0))))
	}
	os.Exit(m.Run())
}

// mostParallel is how many cases run at the same time where nobody has said how many. A case may have a dozen connections
// open: 16 of them are within what a database allows.
const mostParallel = 16

// parallelOn returns how many cases run at the same time on so many processors.
func parallelOn(processors int) int { return min(8*processors, mostParallel) }
