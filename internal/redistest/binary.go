package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
)

const binaryEnv = "LOCKER_REDIS_SERVER"

type binary struct {
	path  string
	major int
}

var versionPattern = regexp.MustCompile(`\bv=(\d+)\.`)

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
	return binary{path, major}, err
})
