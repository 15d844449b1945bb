//go:build unix

package servers

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServers: a server keeps locks, and leaves no file.
func TestServers(t *testing.T) {
	t.Parallel()
	for name, start := range ByStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if LeftOut(name) {
				t.Skip("left out")
			}
			s, err := start(t.Context())
			if name == "etcd" && errors.Is(err, ErrNotInstalled) {
				t.Skip(err) // the tests of the command build one
			}
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
