package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

const binaryEnv = "LOCKER_REDIS_SERVER"

type binary struct {
	path         string
	major, minor int
	keyDB        bool
}

func (b binary) atLeast(major, minor int) bool {
	return b.major > major || b.major == major && b.minor >= minor
}

// AtLeast reports whether the server that the tests use is of that version of Redis or a
// later one, as every Valkey is. Tests leave out what older ones do not have.
func AtLeast(major, minor int) bool {
	b, err := findBinary()
	return err != nil || b.atLeast(major, minor) // the first test that starts one says what is wrong
}

// Blocks reports whether BLPOP may be sent to the server that the tests use. A BLPOP can crash KeyDB 6.3.
func Blocks() bool {
	b, err := findBinary()
	return err != nil || !b.keyDB || b.major != 6 || b.minor != 3
}

// NeedsBLPOP skips a test of BLPOP on a server that gets none.
func NeedsBLPOP(tb testing.TB) {
	tb.Helper()
	if !Blocks() {
		tb.Skip("KeyDB 6.3 gets no BLPOP")
	}
}

var versionPattern = regexp.MustCompile(`\bv=(\d+)\.(\d+)`)

// findBinary looks once per process.
var findBinary = sync.OnceValues(func() (binary, error) {
	name := os.Getenv(binaryEnv)
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return binary{}, fmt.Errorf("%w\nThe tests need a real redis-server: run `make redis`"+
			" (on Debian: apt-get install redis-server), or name its binary in %s", err, binaryEnv)
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return binary{}, fmt.Errorf("%s --version: %w", path, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return binary{}, fmt.Errorf("%s --version: no version in %q", path, out)
	}
	major, err := strconv.Atoi(string(m[1]))
	minor, merr := strconv.Atoi(string(m[2]))
	return binary{path, major, minor, bytes.HasPrefix(out, []byte("KeyDB"))}, errors.Join(err, merr)
})
