package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/distlock/locker/internal/test/signaltest"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/memory"
)

// BenchmarkSignals: the time until a holder knows that it was asked to release, and that its lock was broken, on the stores
// that are not Redis. For Redis see the benchmark of this name in benchmarks.
func BenchmarkSignals(b *testing.B) {
	for name, start := range servers.ByStrategy {
		b.Run(name, func(b *testing.B) {
			if servers.LeftOut(name) {
				b.Skip("left out")
			}
			s, err := start(b.Context())
			if errors.Is(err, servers.ErrNotInstalled) {
				b.Skip(err)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(s.Stop)
			benchSignals(b, func() (*locker.Client, error) {
				l, release, err := strategy.OpenURL(context.Background(), s.URL)
				if err == nil {
					b.Cleanup(release)
				}
				return l, err
			})
		})
	}
	b.Run("memory", func(b *testing.B) {
		store := memory.NewStore()
		benchSignals(b, func() (*locker.Client, error) { return store.New() })
	})
}

func benchSignals(b *testing.B, open func() (*locker.Client, error)) {
	b.Helper()
	pair := signaltest.Open(b, open)
	for name, once := range map[string]func(*testing.B) time.Duration{"request": pair.Requested, "ForceUnlock": pair.Broken} {
		b.Run(name, func(b *testing.B) { pair.Measure(b, once) })
	}
}
