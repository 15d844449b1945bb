//go:build unix

package main

import (
	"io"
	"os"
	"testing"

	"github.com/distlock/locker/strategy/etcd/internal/members"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(members.Tests{M: m}.Run()) }

// TestLibraries: behind its driver each library takes and frees locks, and the harness finds the key of a lock.
func TestLibraries(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			o, err := l.Run(t.Context(), "^(exclusion/(AcquireRelease|RefusedTryHasNoEffect)|lease/BreakIsNoticed)$", io.Discard)
			require.NoError(t, err)
			require.NoError(t, o.Verdict())
			require.Len(t, o.Results, 3)
		})
	}
}
