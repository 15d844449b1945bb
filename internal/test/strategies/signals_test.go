package strategies

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy/memory"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// onSignals runs test with pairs of Lockers on one store: a holder, and who sends it signals.
func onSignals[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, test func(t T, holder, sender locker.Locker)) {
	t.Helper()
	run := func(name string, open func(t T) func() (locker.Locker, error)) {
		t.Run(name, func(t T) {
			open := open(t)
			var pair [2]locker.Locker
			for i := range pair {
				l, err := open()
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				pair[i] = l
			}
			test(t, pair[0], pair[1])
		})
	}
	for name, newLocker := range onOneRedis {
		for server, client := range map[string]func(testing.TB) redis.UniversalClient{
			"single":  func(tb testing.TB) redis.UniversalClient { return redistest.Start(tb).Client(tb) },
			"cluster": func(tb testing.TB) redis.UniversalClient { return redistest.StartCluster(tb, 3, 0).Client(tb) },
		} {
			run(name+" "+server, func(t T) func() (locker.Locker, error) {
				rdb := client(t)
				return func() (locker.Locker, error) { return newLocker(rdb) }
			})
		}
	}
	run("redlock", func(t T) func() (locker.Locker, error) {
		var nodes []redis.UniversalClient
		for range 3 {
			nodes = append(nodes, redistest.Start(t).Client(t))
		}
		return func() (locker.Locker, error) { return redlock.New(nodes) }
	})
	run("memory", func(T) func() (locker.Locker, error) {
		s := memory.NewStore()
		return func() (locker.Locker, error) { return s.New() }
	})
}

// client is the Client of a Locker of this module.
func client(tb testing.TB, l locker.Locker) *locker.Client {
	tb.Helper()
	c, ok := locker.ClientOf(l)
	require.True(tb, ok)
	return c
}

// requested asks for the release of key, and returns how long it took until the holder knew.
func requested(tb testing.TB, holder, sender locker.Locker, key string) time.Duration {
	tb.Helper()
	lease, err := holder.Lock(tb.Context(), key)
	require.NoError(tb, err)
	asked := lease.ReleaseRequested()
	start := time.Now()
	require.NoError(tb, client(tb, sender).RequestRelease(tb.Context(), key))
	await(tb, asked, "the request")
	took := time.Since(start)
	require.NoError(tb, lease.Unlock(tb.Context()))
	return took
}

// broken breaks the lock of key, and returns how long it took until the holder knew.
func broken(tb testing.TB, holder, sender locker.Locker, key string) time.Duration {
	tb.Helper()
	lease, err := holder.Lock(tb.Context(), key)
	require.NoError(tb, err)
	lease.ReleaseRequested()
	h, err := client(tb, sender).Inspect(tb.Context(), key)
	require.NoError(tb, err)
	start := time.Now()
	require.NoError(tb, client(tb, sender).ForceUnlock(tb.Context(), h))
	await(tb, lease.Lost(), "the loss")
	took := time.Since(start)
	require.ErrorIs(tb, lease.Unlock(tb.Context()), locker.ErrLost)
	return took
}

func await(tb testing.TB, c <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-c:
	case <-time.After(8 * time.Second): // the next renewal comes after 10 s
		require.Fail(tb, what+" did not arrive")
	}
}

// The holder learns what an operator asks for, and what an operator takes away, without waiting
// for its next renewal.
func TestSignalsArrive(t *testing.T) {
	onSignals(t, func(t *testing.T, holder, sender locker.Locker) {
		t.Parallel()
		for _, key := range []string{"k", "{a}b", "}x"} {
			requested(t, holder, sender, key)
			broken(t, holder, sender, key)
		}
	})
}

// Signals come at any moment of a lease: while it is granted, handed over, renewed, unlocked and
// lost. Each lease ends all the same, and when the last one has ended nobody listens any more.
func TestSignalsAtAnyMoment(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			var holders [2]locker.Locker
			for i := range holders {
				l, err := newLocker(rdb, locker.WithRenewInterval(5*time.Millisecond))
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close()) }()
				holders[i] = l
			}
			operator, err := newLocker(rdb)
			require.NoError(t, err)
			defer func() { require.NoError(t, operator.Close()) }()
			var use, signals sync.WaitGroup
			for i := range 8 {
				use.Go(func() { useUntilAsked(t, holders[i%2]) })
			}
			over := make(chan struct{})
			for i := range 2 {
				signals.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
						}
						h, err := client(t, operator).Inspect(t.Context(), "k")
						if i == 0 {
							err = errors.Join(err, client(t, operator).RequestRelease(t.Context(), "k"))
						} else if h.Held {
							err = errors.Join(err, client(t, operator).ForceUnlock(t.Context(), h))
							time.Sleep(3 * time.Millisecond) // let some get on
						}
						if err != nil && !errors.Is(err, locker.ErrNotHeld) {
							t.Error(err)
						}
					}
				})
			}
			use.Wait()
			close(over)
			signals.Wait()
			require.Eventually(t, func() bool {
				channels, err := rdb.PubSubChannels(t.Context(), "locker:claims:*").Result()
				return err == nil && len(channels) == 0
			}, 10*time.Second, 10*time.Millisecond, "somebody listens though no lease waits")
		})
	}
}

// useUntilAsked locks again and again, and holds until it is asked for the lock, or for a short time.
func useUntilAsked(t *testing.T, l locker.Locker) {
	t.Helper()
	for range 50 {
		lease, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Error(err)
			return
		}
		select {
		case <-lease.ReleaseRequested():
		case <-lease.AtRisk():
		case <-time.After(time.Duration(rand.N(5)) * time.Millisecond):
		}
		if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
	}
}

// BenchmarkSignals measures how long it takes until the holder knows: the aim is 5 ms at the
// 99th percentile on a near Redis.
func BenchmarkSignals(b *testing.B) {
	for name, send := range map[string]func(tb testing.TB, holder, sender locker.Locker, key string) time.Duration{
		"request": requested, "broken": broken,
	} {
		b.Run(name, func(b *testing.B) {
			onSignals(b, func(b *testing.B, holder, sender locker.Locker) {
				b.Helper()
				lease, err := holder.Lock(b.Context(), "another") // the Locker listens all the time
				require.NoError(b, err)
				lease.ReleaseRequested()
				send(b, holder, sender, "k") // connections are made
				var all []time.Duration
				for b.Loop() {
					all = append(all, send(b, holder, sender, "k"))
				}
				require.NoError(b, lease.Unlock(b.Context()))
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
			})
		})
	}
}
