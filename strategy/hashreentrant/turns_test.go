package hashreentrant_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/stretchr/testify/require"
)

// contend locks a key, runs a section and unlocks.
type contend func(ctx context.Context, section func()) error

// sections lets each contender run sections of 1 ms under one key until all of them together have run n,
// and returns how many each ran.
func sections(t *testing.T, n int, contenders []contend) []int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counts, total := make([]int, len(contenders)), 0 // changed in sections
	var all sync.WaitGroup
	for i, contend := range contenders {
		all.Go(func() {
			for ctx.Err() == nil {
				err := contend(ctx, func() {
					time.Sleep(time.Millisecond) // the section
					counts[i]++
					if total++; total == n {
						cancel()
					}
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	all.Wait()
	return counts
}

// contender locks with l.
func contender(l locker.Locker) contend {
	return func(ctx context.Context, section func()) error {
		lease, err := l.Lock(ctx, "k")
		if err != nil {
			return err
		}
		section()
		return lease.Unlock(context.WithoutCancel(ctx))
	}
}

// Lockers that wait for one key have even shares.
func TestLockersTakeTurns(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	var contenders []contend
	for range 8 {
		contenders = append(contenders, contender(newLocker(t, rdb)))
	}
	counts := sections(t, 800, contenders)
	t.Log(counts)
	for _, n := range counts {
		require.Greater(t, n, 25, "of %v", counts)
	}
}

// Beside Lockers and Java waiters that take no turns, those that do have their share.
func TestTurnsBesideOthers(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for name, other := range map[string]func(i int) contend{
		"earlier versions": func(int) contend {
			l, err := hashreentrant.NewWithoutTurns(rdb)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			return contender(l)
		},
		"Java": func(i int) contend {
			j := &javaLock{rdb: rdb, name: "k", field: fmt.Sprintf("6f1d2c3b-0000-4000-8000-0123456789ab:%d", i)}
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
		},
	} {
		t.Run(name, func(t *testing.T) {
			var contenders []contend
			for i := range 4 {
				contenders = append(contenders, contender(newLocker(t, rdb)), other(i))
			}
			counts := sections(t, 800, contenders)
			t.Log(counts)
			var with, without int
			for i, n := range counts {
				if i%2 == 0 {
					with += n
				} else {
					without += n
				}
			}
			require.Greater(t, 2*with, without, "%v", counts)
		})
	}
}
