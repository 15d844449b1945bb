package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/conformance"
)

// TestParallelOn: a store allows only so many connections, however many processors the tests have.
func TestParallelOn(t *testing.T) {
	for processors, want := range map[int]int{1: 8, 2: 16, 16: 16, 128: 16} {
		require.Equal(t, want, conformance.ParallelOn(processors))
	}
}
