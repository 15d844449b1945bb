package redisconn

import (
	"sync/atomic"
	"testing"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/stretchr/testify/require"
)

func TestHelloTellsOfNativeCommands(t *testing.T) {
	for _, c := range []struct {
		hello any
		known bool
	}{
		{[]any{"server", "valkey", "version", "9.0.0", "proto", int64(2)}, true},
		{[]any{"server", "valkey", "version", "10.1.2"}, true},
		{[]any{"server", "valkey", "version", "8.1.0"}, false},
		{[]any{"server", "redis", "version", "9.0.0"}, false},
		{[]any{"server", "valkey"}, false},
		{[]any{"server", "valkey", "version"}, false},
		{"OK", false},
		{nil, false},
	} {
		var n natives
		n.note(c.hello)
		require.Equal(t, c.known, n.known.Load(), c.hello)
	}
}

// native is release, with a native command.
func native() *Script {
	s := *release
	s.Native = DelIfEq
	return &s
}

// nativeWays are the two ways to a server: alone, and with the fast path in use.
func nativeWays(t *testing.T, test func(t *testing.T, l *proxied, sent map[string]*atomic.Int64)) {
	t.Helper()
	for _, way := range []string{"alone", "in a batch"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			l := newProxied(t, false)
			if fast := l.commands.single.fast; way == "in a batch" {
				conn := <-fast.free
				defer func() { fast.free <- conn }()
			}
			sent := map[string]*atomic.Int64{"native": {}, "script": {}}
			for name, is := range map[string]faultproxy.Match{"native": faultproxy.MatchCommand(DelIfEq), "script": anyScript} {
				l.proxy.Watch(func(cmd []string) {
					if is(cmd) {
						sent[name].Add(1)
					}
				})
			}
			test(t, l, sent)
		})
	}
}

func (l *proxied) hasNatives() bool { return l.commands.single.natives().known.Load() }

// A release goes by one command, whichever it is, and frees what is ours and nothing else.
func TestReleaseByANativeCommand(t *testing.T) {
	t.Parallel()
	nativeWays(t, func(t *testing.T, l *proxied, sent map[string]*atomic.Int64) {
		by, not := "script", "native"
		if l.hasNatives() {
			by, not = not, by
		}
		ctx, s := t.Context(), native()
		require.NoError(t, l.direct.Set(ctx, "k", "id", 0).Err())
		require.NoError(t, l.run(ctx, s, l.claim))
		require.EqualValues(t, 0, l.direct.Exists(ctx, "k").Val())
		require.ErrorIs(t, l.run(ctx, s, l.claim), errNotHeld, "sent twice")
		require.NoError(t, l.direct.Set(ctx, "k", "another", 0).Err())
		require.ErrorIs(t, l.run(ctx, s, l.claim), errNotHeld)
		require.Equal(t, "another", l.direct.Get(ctx, "k").Val())
		require.EqualValues(t, 3, sent[by].Load())
		require.EqualValues(t, 0, sent[not].Load())
	})
}

// Where HELLO is wrong about the server or the user, the script releases, and the native
// command is not sent again.
func TestANativeCommandThatIsRefused(t *testing.T) {
	t.Parallel()
	nativeWays(t, func(t *testing.T, l *proxied, sent map[string]*atomic.Int64) {
		ctx, s := t.Context(), native()
		if l.hasNatives() {
			require.NoError(t, l.direct.Do(ctx, "acl", "setuser", "default", "-"+DelIfEq).Err())
		}
		n := l.commands.single.natives()
		n.known.Store(true)
		for range 2 {
			require.NoError(t, l.direct.Set(ctx, "k", "id", 0).Err())
			require.NoError(t, l.run(ctx, s, l.claim))
			require.EqualValues(t, 0, l.direct.Exists(ctx, "k").Val())
		}
		require.EqualValues(t, 1, sent["native"].Load())
		n.note([]any{"server", "valkey", "version", "9.0.0"})
		require.False(t, n.known.Load(), "not for a new connection, either")
	})
}

// Something else is at the key: the script says what that means, and the next release is native again.
func TestANativeCommandAtAnotherType(t *testing.T) {
	t.Parallel()
	nativeWays(t, func(t *testing.T, l *proxied, sent map[string]*atomic.Int64) {
		if !l.hasNatives() {
			t.Skip("the server has no " + DelIfEq)
		}
		ctx, s := t.Context(), NewScript("release", head+"if redis.pcall('GET', lock) ~= claim then return 0 end return redis.call('DEL', lock)")
		s.Native = DelIfEq
		require.NoError(t, l.direct.HSet(ctx, "k", "a", "b").Err())
		require.ErrorIs(t, l.run(ctx, s, l.claim), errNotHeld)
		require.NotZero(t, sent["script"].Load())
		require.NoError(t, l.direct.Del(ctx, "k").Err())
		require.NoError(t, l.direct.Set(ctx, "k", "id", 0).Err())
		scripts, natives := sent["script"].Load(), sent["native"].Load()
		require.NoError(t, l.run(ctx, s, l.claim))
		require.Equal(t, scripts, sent["script"].Load())
		require.Equal(t, natives+1, sent["native"].Load())
	})
}
