// Package serverstest starts the servers of lock stores for the tests of the command.
package serverstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/distlock/locker/cmd/locker/internal/servers"
)

// files is a directory for what all tests share. Others may look into it: servers run as users of their own.
var files string

// Main runs the tests of a package and returns their exit code.
func Main(m *testing.M) int {
	var err error
	if files, err = os.MkdirTemp("", "lockertest"); err == nil {
		err = os.Chmod(files, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(files)
	return m.Run()
}

// etcd compiles an etcd, and has it found by all that start one.
var etcd = sync.OnceValue(func() error {
	if os.Getenv("LOCKER_ETCD_SERVER") != "" {
		return nil
	}
	strategy, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/distlock/locker/strategy/etcd").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	program, source := filepath.Join(files, "etcd"), filepath.Join(strings.TrimSpace(string(strategy)), "internal", "member")
	if out, err := exec.Command("go", "-C", source, "build", "-trimpath", "-o", program, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return os.Setenv("LOCKER_ETCD_SERVER", program)
})

// Etcd makes sure that an etcd can be started.
func Etcd(t *testing.T) {
	t.Helper()
	if err := etcd(); err != nil {
		t.Fatal(err)
	}
}

// Start starts a server for a strategy, unless the environment leaves it out of the tests.
func Start(t *testing.T, strategy string) *servers.Server {
	t.Helper()
	if servers.LeftOut(strategy) {
		t.Skip("left out")
	}
	if strategy == "etcd" {
		Etcd(t)
	}
	s, err := servers.ByStrategy[strategy](t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}
