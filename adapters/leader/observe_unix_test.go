//go:build unix

package leader_test

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An observer that was stopped for some terms says that it may have missed some, and goes on with the present one.
func TestObserverThatWasStopped(t *testing.T) {
	t.Parallel()
	e := elect(t, "hashreentrant", 50*time.Millisecond)
	e.see(t, 2)
	require.NoError(t, e.observer.Process.Signal(syscall.SIGSTOP))
	said := make([]string, 0, 100)
	for len(e.annSays) > 0 {
		said = append(said, <-e.annSays) // maybe before it was stopped
	}
	for range 4 {
		said = append(said, next(t, e.annSays))
	}
	require.NoError(t, e.observer.Process.Signal(syscall.SIGCONT))
	e.see(t, 2)
	terms := append(said, e.end(t)...)
	slices.SortFunc(terms, func(a, b string) int { return cmp.Compare(token(a), token(b)) })
	require.NotZero(t, requireObserved(t, terms, e.seen))
}
