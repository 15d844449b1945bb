// Package tokentest tests how a driver on one Redis reserves fencing tokens.
package tokentest

import (
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// Blocks tests that a grant reserves as many tokens as were asked for, that the same
// request is answered with the same ones, and that none is given twice.
func Blocks(t *testing.T, d driver.Driver) {
	t.Helper()
	last, claims := int64(0), 0
	for _, fencing := range []bool{true, false, true} {
		for _, n := range []int{0, 1, 32, 16, 1} {
			claims++
			id := fmt.Sprintf("0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:%d", claims)
			c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
			req := driver.Request{Claim: c, Fencing: fencing, Tokens: n}
			a, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.True(t, a.Granted)
			again, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, a, again, "the command was sent twice")
			if fencing {
				require.Greater(t, a.Token, last)
				require.Equal(t, max(n, 1), a.Tokens)
				last = a.Token + int64(a.Tokens) - 1
			} else {
				require.Zero(t, a.Token)
				require.Zero(t, a.Tokens)
			}
			require.NoError(t, d.Release(t.Context(), c))
		}
	}
}
