package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

// hole is a connection on which nothing is ever answered.
type hole struct{ net.Conn }

func (h hole) Write(b []byte) (int, error) { return len(b), nil }

// A connection attempt that is never answered is given up, also while somebody always waits.
func TestHungListenerIsGivenUp(t *testing.T) {
	t.Parallel()
	s, ctx := startServer(t), t.Context()
	cfg, err := pgxpool.ParseConfig(s.url("app", "app"))
	require.NoError(t, err)
	var dials atomic.Int64
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			conn, _ := net.Pipe()
			return hole{conn}, nil
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	d := postgres.NewDriver(pool)
	defer d.Close()
	conformance.Eventually(t, 30*time.Second, "a Watch is open", func() bool {
		brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // the next one comes long before the connection lingers no more
		defer cancel()
		w, err := d.(driver.Notifier).Watch(brief, "k")
		if err == nil {
			w.Close()
		}
		return err == nil
	})
	require.EqualValues(t, 2, dials.Load())
}
