package idle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestDoneIsClosedWhenNothingRuns(t *testing.T) {
	t.Parallel()
	var c Count
	require.True(t, isClosed(c.Done()), "nothing has run yet")

	c.Add(2)
	require.False(t, c.Awaited())
	first := c.Done()
	require.True(t, c.Awaited())
	c.Add(-1)
	second := c.Done()
	require.False(t, isClosed(first), "one still runs")
	require.False(t, isClosed(second), "one still runs")
	c.Add(-1)
	require.True(t, isClosed(first))
	require.True(t, isClosed(second))
	require.False(t, c.Awaited())
	require.True(t, isClosed(c.Done()))

	c.Add(1)
	require.True(t, isClosed(first), "it was idle once")
	third := c.Done()
	require.False(t, isClosed(third), "something runs again")
	c.Add(1)
	c.Add(-2)
	require.True(t, isClosed(third))
}
