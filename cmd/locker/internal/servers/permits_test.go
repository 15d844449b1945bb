package servers_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/distlock/locker/internal/test/contention"
	"github.com/distlock/locker/strategy"
)

func TestMain(m *testing.M) {
	contention.Serve(func(_, url string) (contention.Acquire, error) {
		l, _, err := strategy.OpenURL(context.Background(), url)
		if err != nil {
			return nil, err
		}
		return contention.Semaphore(l)
	})
	os.Exit(serverstest.Main(m))
}

// BenchmarkPermits: see contention.Measure. Run it with -benchtime 1x -count 3. For Redis see the benchmark of this name in benchmarks/peers.
func BenchmarkPermits(b *testing.B) {
	for name, start := range servers.ByStrategy {
		b.Run(name, func(b *testing.B) {
			if servers.LeftOut(name) {
				b.Skip("left out")
			}
			for range b.N {
				s, err := start(b.Context())
				if errors.Is(err, servers.ErrNotInstalled) {
					b.Skip(err)
				}
				if err != nil {
					b.Fatal(err)
				}
				contention.Measure(b, name, s.URL, nil)
				s.Stop()
			}
		})
	}
}
