package setnx

import (
	"testing"

	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/tokentest"
	"github.com/stretchr/testify/require"
)

func TestTokenBlocks(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	d, err := redisdriver.NewDriver(rdb, protocol)
	require.NoError(t, err)
	defer d.Close()
	tokentest.Blocks(t, d)
	tokentest.Ahead(t, d, func(counter int64) {
		require.NoError(t, rdb.Set(t.Context(), redisdriver.FenceKey("k"), counter, 0).Err())
		if counter == 0 {
			require.NoError(t, rdb.Del(t.Context(), redisdriver.FenceKey("k")).Err())
		}
	})
}
