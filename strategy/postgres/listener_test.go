package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/postgres"
)

// hole is a connection on which nothing is ever answered.
type hole struct{ net.Conn }

func (h hole) Write(b []byte) (int, error) { return len(b), nil }

// A connection attempt that is never answered is given up, also while a Watch waits for it all the time.
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
	inTime, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = d.(driver.Notifier).Watch(inTime, "k") // it waits as long as the connection is not given up
	require.Error(t, err)
	require.NoError(t, inTime.Err())
	w, err := d.(driver.Notifier).Watch(inTime, "k")
	require.NoError(t, err)
	w.Close()
	require.EqualValues(t, 2, dials.Load())
}
