//go:build unix

package main

import (
	"io"
	"testing"

	"github.com/distlock/locker/conformance"
	"github.com/stretchr/testify/require"
)

// TestLibraries: behind its driver each library takes, keeps and frees locks, and the proxy recognises its commands: it could
// lose and repeat none that it does not know.
func TestLibraries(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			o, err := l.Run(t.Context(), "^(exclusion/(AcquireRelease|RefusedTryHasNoEffect)|lease/RenewExtends)$", io.Discard)
			require.NoError(t, err)
			require.NoError(t, o.Verdict())
			require.Len(t, o.Results, 3)

			h := l.Harness(t)
			lockers := h.NewLocker(t)
			defer func() { require.NoError(t, lockers.Close()) }()
			for range 2 { // the server learns the scripts by the first
				lease, err := lockers.Lock(t.Context(), "k")
				require.NoError(t, err)
				require.NoError(t, lease.Renew(t.Context()))
				require.NoError(t, lease.Unlock(t.Context()))
			}
			for _, op := range commands {
				if op != conformance.OpRenew || l.LeftOut["RenewTwice"] == "" { // or the library renews by itself, and later
					require.NotZero(t, h.(conformance.Faults).Sent(op), op)
				}
			}
		})
	}
}

// TestOps: a script is known by its text, and by its hash from then on.
func TestOps(t *testing.T) {
	var o ops
	require.Equal(t, conformance.OpAcquire, o.of([]string{"SET", "k", "v", "EX", "3", "NX"}))
	require.Empty(t, o.of([]string{"GET", "k"}))
	require.Empty(t, o.of([]string{"EVALSHA", "unknown", "1", "k"}))
	for script, want := range map[string]conformance.Op{
		`return redis.call("SET",KEYS[1],ARGV[1],"NX","PX",ARGV[2])`: conformance.OpAcquire,
		`return redis.call("PEXPIRE", KEYS[1], ARGV[2])`:             conformance.OpRenew,
		`return redis.call("DEL", KEYS[1])`:                          conformance.OpRelease,
		`return redis.call("PTTL", KEYS[1])`:                         "",
	} {
		require.Equal(t, want, o.of([]string{"EVAL", script, "1", "k"}))
		require.Equal(t, want, o.of([]string{"EVALSHA", hash(script), "1", "k"}))
	}
}
