package blpop

import (
	"testing"

	"github.com/distlock/locker/internal/redisdriver/tokentest"
	"github.com/distlock/locker/internal/redistest"
	"github.com/stretchr/testify/require"
)

func TestTokenBlocks(t *testing.T) {
	d, err := newDriver(redistest.Start(t).Client(t))
	require.NoError(t, err)
	defer d.Close()
	tokentest.Blocks(t, d)
}
