package hashreentrant_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/stretchr/testify/require"
)

// Lockers that wait for one key have even shares.
func TestLockersTakeTurns(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	var contenders []contend
	for range 8 {
		contenders = append(contenders, contender(newLocker(t, rdb)))
	}
	counts := sections(t, 800, contenders)
	for _, n := range counts {
		require.Greater(t, n, 25, "of %v", counts)
	}
}

// So have processes.
func TestProcessesTakeTurns(t *testing.T) {
	counts := processes(t, 800, redistest.Start(t).Addr(), 8)
	for _, n := range counts {
		require.Greater(t, n, 25, "of %v", counts)
	}
}

// A Locker that waits beside Java waiters, which take no turns, has its share. (Beside earlier versions of this
// package too, but only in the long run: who has the key keeps it for a second and more.)
func TestTurnsBesideJava(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	java := func(i int) contend {
		j := &javaLock{rdb: rdb, name: wanted, field: fmt.Sprintf("6f1d2c3b-0000-4000-8000-0123456789ab:%d", i)}
		messages := rdb.Subscribe(t.Context(), j.channel())
		t.Cleanup(func() { require.NoError(t, messages.Close()) })
		return func(ctx context.Context, section func()) error {
			for j.tryLock(t) != 0 {
				select {
				case <-messages.Channel():
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			section()
			require.EqualValues(t, 1, j.unlock(t))
			return nil
		}
	}
	var contenders []contend
	for i := range 4 {
		contenders = append(contenders, contender(newLocker(t, rdb)), java(i))
	}
	counts := sections(t, 2400, contenders)
	var with, without int
	for i, n := range counts {
		if i%2 == 0 {
			with += n
		} else {
			without += n
		}
	}
	require.Greater(t, 2*with, without, "%v", counts)
}
