//go:build unix

package servers_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/stretchr/testify/require"
)

// TestServers: a server keeps locks, and leaves no file.
func TestServers(t *testing.T) {
	t.Parallel()
	for name, start := range servers.ByStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if servers.LeftOut(name) {
				t.Skip("left out")
			}
			if name == "etcd" {
				serverstest.Etcd(t)
			}
			s, err := start(t.Context())
			require.NoError(t, err) // a lock was taken
			require.NotEmpty(t, s.About)
			s.Stop()
			require.NoDirExists(t, s.Dir)
			require.Error(t, errProcess(s.PID))
		})
	}
}

// errProcess is an error if there is no such process.
func errProcess(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(syscall.Signal(0))
}
