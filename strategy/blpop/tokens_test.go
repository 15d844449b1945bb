package blpop

import (
	"testing"

	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/tokentest"
	"github.com/stretchr/testify/require"
)

func TestTokenBlocks(t *testing.T) {
	d, err := newDriver(redistest.Start(t).Client(t))
	require.NoError(t, err)
	defer d.Close()
	tokentest.Blocks(t, d)
}
