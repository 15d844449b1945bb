// Package tokentest tests how a driver reserves fencing tokens.
package tokentest

import (
	"fmt"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// Blocks tests that a grant reserves tokens that end at the clock, as many as were asked for and are new; that the same
// request is answered with one of them; and that none is given twice.
func Blocks(t *testing.T, d driver.Driver) {
	t.Helper()
	last, claims := int64(0), 0
	for _, fencing := range []bool{true, false, true} {
		for _, n := range []int{0, 1, 32, 256, 16, 256, 1} {
			claims++
			id := fmt.Sprintf("0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:%d", claims)
			c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
			req := driver.Request{Claim: c, Fencing: fencing, Tokens: n}
			time.Sleep(time.Millisecond) // 256 tokens are new
			a, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.True(t, a.Granted)
			again, err := d.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.True(t, again.Granted, "the command was sent twice")
			if fencing {
				require.Greater(t, a.Token, last)
				require.Equal(t, max(n, 1), a.Tokens)
				last = a.Token + int64(a.Tokens) - 1
				require.Equal(t, last, again.Token, "the command was sent twice: how many there were is not known any more")
				require.Equal(t, 1, again.Tokens)
				require.LessOrEqual(t, last, time.Now().UnixMicro()+driver.TokensAhead, "tokens do not run ahead of the clock")
			} else {
				require.Zero(t, a.Token)
				require.Zero(t, a.Tokens)
				require.Equal(t, a, again)
			}
			require.NoError(t, d.Release(t.Context(), c))
		}
	}
}

// Kept tests the tokens of a store that keeps how many a grant has: a grant reserves tokens from the clock on, as many as
// were asked for and [driver.TokensAhead] at most; the same request is answered with the same ones; and none is given twice.
func Kept(t *testing.T, d driver.Driver) {
	t.Helper()
	last := int64(0)
	for i, n := range []int{0, 1, 32, 256, 16, 1} {
		id := fmt.Sprintf("0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:%d", i)
		c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
		req := driver.Request{Claim: c, Fencing: true, Tokens: n}
		a, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.True(t, a.Granted)
		again, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, a, again, "the command was sent twice")
		require.Greater(t, a.Token, last)
		require.Equal(t, min(max(n, 1), driver.TokensAhead), a.Tokens)
		last = a.Token + int64(a.Tokens) - 1
		require.NoError(t, d.Release(t.Context(), c))
	}
}

// Ahead tests that a grant reserves a few tokens only where the counter is lost or ahead of the clock.
func Ahead(t *testing.T, d driver.Driver, set func(counter int64)) {
	t.Helper()
	for i, counter := range []int64{0, time.Now().Add(time.Hour).UnixMicro()} {
		set(counter)
		id := fmt.Sprintf("0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f:%d", i)
		c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute}
		before := time.Now().UnixMicro()
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true, Tokens: 256})
		require.NoError(t, err)
		require.Equal(t, driver.TokensAhead, a.Tokens)
		require.Greater(t, a.Token, counter)
		require.GreaterOrEqual(t, a.Token, before, "what was issued before the counter was lost is not issued again")
		require.NoError(t, d.Release(t.Context(), c))
	}
}
