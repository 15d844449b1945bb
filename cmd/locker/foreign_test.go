//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inLines are the objects that --json has printed.
func inLines(t *testing.T, out string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var one map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}
	return all
}

// TestInspectShowsLocksOnly: what is no lock is not reported as one, and no value of another
// program is shown unless asked for.
func TestInspectShowsLocksOnly(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	url, rdb := "--url=setnx+unix://"+s.Socket(), s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "counter", 17, 0).Err())
	require.NoError(t, rdb.HSet(t.Context(), "user:1", "name", "secret name").Err())
	require.NoError(t, rdb.Set(t.Context(), "large", strings.Repeat("secret", 1000), time.Hour).Err())
	out, _ := runs(t, exitNone, nil, "inspect", url, "*")
	require.Equal(t, "no lock is held\n", out)
	require.NoError(t, rdb.SetNX(t.Context(), "redsync", "secret token", time.Hour).Err())
	lease, err := l.Lock(t.Context(), "ours")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Unlock(t.Context()) })

	lines, _ := runs(t, 0, nil, "inspect", url, "--json", "*")
	require.Len(t, inLines(t, lines), 1)
	require.Equal(t, "ours", inLines(t, lines)[0]["key"])
	table, _ := runs(t, 0, nil, "inspect", url, "--all")
	lines, _ = runs(t, 0, nil, "inspect", url, "--all", "--json", "*")
	require.NotContains(t, table+lines, "secret")
	states, held := make(map[any]any), make(map[any]any)
	for _, one := range inLines(t, lines) {
		states[one["key"]], held[one["key"]] = one["state"], one["held"]
		require.Contains(t, table, one["key"])
	}
	require.Equal(t, map[any]any{"ours": "held", "redsync": "foreign", "large": "data", "counter": "data", "user:1": "data"}, states)
	require.Equal(t, map[any]any{"ours": true, "redsync": true, "large": false, "counter": false, "user:1": false}, held)

	for _, key := range []string{"counter", "user:1", "large"} {
		out, _ := runs(t, exitNone, nil, "inspect", url, key)
		require.Contains(t, out, "data")
		require.NotContains(t, out, "17")
		require.NotContains(t, out, "secret")
		out, _ = runs(t, exitNone, nil, "inspect", url, "--json", key)
		one := inLines(t, out)[0]
		require.Equal(t, false, one["held"])
		require.Equal(t, "data", one["state"])
		require.NotContains(t, out, "secret")
	}
	out, _ = runs(t, 0, nil, "inspect", url, "redsync")
	require.Contains(t, out, "another program")
	require.NotContains(t, out, "secret")
	out, _ = runs(t, 0, nil, "inspect", url, "--values", "redsync")
	require.Contains(t, out, "secret token")
	out, _ = runs(t, 0, nil, "inspect", url, "--values", "--json", "redsync")
	require.Equal(t, "secret token", inLines(t, out)[0]["value"])
	_, stderr := runs(t, exitNotAcquired, nil, "run", url, "--key", "redsync", "--wait", "0", "true")
	require.Contains(t, stderr, "another program")
	require.NotContains(t, stderr, "secret")
}

// TestInspectIsLossless: what is not UTF-8 can be read back from JSON.
func TestInspectIsLossless(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	url, rdb := "--url=setnx+unix://"+s.Socket(), s.Client(t)
	const binary = "\xff\x00 owner"
	require.NoError(t, rdb.Set(t.Context(), "foreign", binary, time.Hour).Err())
	require.NoError(t, rdb.HSet(t.Context(), "hash", binary, "1", "01234567-89ab-8def-8123-456789abcdef:1", "1 99999999999999 5").Err())
	require.NoError(t, rdb.PExpire(t.Context(), "hash", time.Hour).Err())
	for key, field := range map[string]string{"foreign": "value", "hash": "owner"} {
		out, _ := runs(t, 0, nil, "inspect", url, "--json", "--values", key)
		var one map[string]struct{ Base64 []byte }
		_ = json.Unmarshal([]byte(out), &one) // other fields are of other types
		require.Equal(t, binary, string(one[field].Base64), out)
	}
}

// TestInspectRows: each column of a row has something, and a pattern that can match nothing
// is refused.
func TestInspectRows(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	url := "--url=setnx+unix://" + s.Socket()
	out, _ := runs(t, exitNone, nil, "inspect", url, "k")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, rows, 2)
	require.Len(t, strings.Fields(rows[1]), 8, "one for each column")
	for _, pattern := range []string{"[", "a[bc", "[]", `a\[[b\]`, `a*\`} {
		_, stderr := runs(t, exitUsage, nil, "inspect", url, pattern)
		require.Contains(t, stderr, "--exact", pattern)
	}
	for _, pattern := range []string{"[ab]", `\[`, `[\]]`, "[^a]", "*]"} {
		runs(t, exitNone, nil, "inspect", url, pattern)
	}
	runs(t, exitNone, nil, "inspect", url, "--exact", "[")
}
