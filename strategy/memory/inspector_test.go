package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
)

func TestHoldersOfABadPattern(t *testing.T) {
	l, err := New()
	require.NoError(t, err)
	defer l.Close()
	for _, key := range []string{"", "k"} {
		if key != "" {
			lease, err := l.Lock(t.Context(), key)
			require.NoError(t, err)
			defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
		}
		told := 0
		for _, err := range l.Holders(t.Context(), "[") {
			require.ErrorIs(t, err, locker.ErrInvalid)
			told++
		}
		require.Equal(t, 1, told, "held: %q", key)
	}
}

// The body of a loop over Holders may close the Locker.
func TestCloseWithinHolders(t *testing.T) {
	l, err := New()
	require.NoError(t, err)
	for i := range 100 { // which are inspected 64 at a time
		_, err = l.Lock(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
	}
	start, told := time.Now(), 0
	for _, err := range l.Holders(t.Context(), "*") {
		if told++; told == 1 {
			require.NoError(t, l.Close())
		}
		if told <= 64 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, locker.ErrClosed)
	}
	require.Equal(t, 65, told)
	require.Less(t, time.Since(start), 2*time.Second, "Close waits for nothing that is under way for so long")
}
