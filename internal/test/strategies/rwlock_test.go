package strategies

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestReadersOfProcesses: the readers of several Lockers are inside together, and writers are alone.
func TestReadersOfProcesses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for name, newLocker := range onRedis3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var locks []*locker.RWLock
			for range 4 {
				rw, err := locker.NewRWLock(openOn(t, rdb, name, newLocker), "k")
				require.NoError(t, err)
				locks = append(locks, rw)
			}
			first, err := locks[0].RLock(t.Context())
			require.NoError(t, err)
			second, err := locks[1].RLock(t.Context(), locker.WithWait(0))
			require.NoError(t, err)
			_, err = locks[2].Lock(t.Context(), locker.WithWait(0))
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			require.NoError(t, second.Unlock(t.Context()))
			require.NoError(t, first.Unlock(t.Context()))

			var readers, writers atomic.Int32
			var token atomic.Int64 // of the last writer
			var wg sync.WaitGroup
			for i, rw := range locks {
				wg.Go(func() {
					for n := range 20 {
						if (i+n)%4 != 0 {
							lease, err := rw.RLock(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							readers.Add(1)
							if writers.Load() > 0 || lease.Token() <= token.Load() {
								t.Errorf("%d writers are inside, and a reader with token %d after %d", writers.Load(), lease.Token(), token.Load())
							}
							readers.Add(-1)
							unlockIn(t, lease)
							continue
						}
						lease, err := rw.Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if w := writers.Add(1); w > 1 || readers.Load() > 0 {
							t.Errorf("%d writers and %d readers are inside", w, readers.Load())
						}
						token.Store(lease.Token())
						writers.Add(-1)
						unlockIn(t, lease)
					}
				})
			}
			wg.Wait()
		})
	}
}

func openOn(t *testing.T, rdb redis.UniversalClient, name string, newLocker func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)) locker.Locker {
	t.Helper()
	l, err := newLocker(rdb, locker.WithPrefix(name+":"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSemaphoreOfProcesses: so many permits, of all Lockers together.
func TestSemaphoreOfProcesses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for name, newLocker := range onRedis3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []*locker.Semaphore
			for range 6 {
				s, err := locker.NewSemaphore(openOn(t, rdb, name, newLocker), "k", 3)
				require.NoError(t, err)
				all = append(all, s)
			}
			var permits []*locker.Lease
			for _, s := range all[:3] {
				lease, err := s.Acquire(t.Context())
				require.NoError(t, err)
				permits = append(permits, lease)
			}
			_, err := all[3].Acquire(t.Context(), locker.WithWait(0))
			require.ErrorIs(t, err, locker.ErrNotAcquired)
			for _, lease := range permits {
				require.NoError(t, lease.Unlock(t.Context()))
			}
			var inside atomic.Int32
			var wg sync.WaitGroup
			for _, s := range all {
				wg.Go(func() {
					for range 15 {
						lease, err := s.Acquire(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if n := inside.Add(1); n > 3 {
							t.Errorf("%d are inside", n)
						}
						inside.Add(-1)
						unlockIn(t, lease)
					}
				})
			}
			wg.Wait()
		})
	}
}

// unlockIn is for goroutines of a test.
func unlockIn(t *testing.T, lease *locker.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
