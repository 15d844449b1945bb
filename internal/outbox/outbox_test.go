package outbox

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCallsAreMadeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outbox
		var got []int
		for i := range 100 {
			require.True(t, o.Push(1000, func(int) { got = append(got, i) }, nil))
		}
		synctest.Wait()
		require.Len(t, got, 100)
		require.IsIncreasing(t, got)
	})
}

// A call that blocks holds up those behind it; beyond the room they are dropped, and the next
// call learns how many were.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outbox
		release, told := make(chan struct{}), -1
		o.Push(2, func(int) { <-release }, nil)
		synctest.Wait()
		require.True(t, o.Push(2, func(int) {}, nil))
		require.True(t, o.Push(2, func(int) {}, nil))
		require.False(t, o.Push(2, func(int) {}, nil))
		require.False(t, o.Push(0, func(int) {}, nil))
		require.True(t, o.Push(3, func(dropped int) { told = dropped }, nil))
		require.EqualValues(t, 2, o.Dropped())
		close(release)
		synctest.Wait()
		require.Equal(t, 2, told)
	})
}

// A panic and runtime.Goexit end the call, and no other.
func TestCallsThatDoNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outbox
		var reported any
		made := false
		o.Push(10, func(int) { panic("bad") }, func(v any) { reported = v })
		o.Push(10, func(int) { panic("ignored") }, nil)
		o.Push(10, func(int) { runtime.Goexit() }, nil)
		o.Push(10, func(int) { made = true }, nil)
		synctest.Wait()
		require.Equal(t, "bad", reported)
		require.True(t, made)
	})
}

// Close waits for as long as calls go on being made, up to a time; it gives up one that hangs
// after the grace.
func TestClose(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		each      time.Duration
		calls     int
		takes     time.Duration
		remaining uint64
	}{
		"all are made":                    {50 * ms, 10, 500 * ms, 0},
		"they go on":                      {400 * ms, 10, 4000 * ms, 0},
		"they go on for too long":         {400 * ms, 20, 5000 * ms, 7},
		"one takes longer than the grace": {time.Minute, 3, 500 * ms, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o Outbox
				for range c.calls {
					o.Push(100, func(int) { time.Sleep(c.each) }, nil) // on the bubble's clock
				}
				synctest.Wait()
				began := time.Now()
				o.Close(500*ms, began.Add(5*time.Second))
				require.Equal(t, c.takes, time.Since(began))
				require.Equal(t, c.remaining, o.Dropped())
				time.Sleep(c.each) // for the call under way
			})
		})
	}
}
