//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/require"
)

// runs runs a command line in this process.
func runs(t *testing.T, code int, stdin io.Reader, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, code, execute(args, stdin, &out, &errs), "%s%s", &out, &errs)
	return out.String(), errs.String()
}

func TestInspect(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	url := "--url=hashreentrant+unix://" + s.Socket()
	l, err := blpop.New(s.Client(t), locker.WithMetadata("job", "nightly"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	out, _ := runs(t, 1, nil, "inspect", url)
	require.Equal(t, "no lock is held\n", out)
	out, _ = runs(t, 1, nil, "inspect", url, "deploy")
	require.Contains(t, out, "free")

	lease, err := l.Lock(t.Context(), "deploy")
	require.NoError(t, err)
	require.NoError(t, s.Client(t).Set(t.Context(), "app data", "x", 0).Err())
	require.NoError(t, s.Client(t).Set(t.Context(), "a*b", "me\x1b[2J", time.Minute).Err())
	require.NoError(t, s.Client(t).Set(t.Context(), "forged", "x?%1b%5B2J%0aother=v\u009b", time.Minute).Err())
	require.NoError(t, s.Client(t).RPush(t.Context(), "list", "x").Err())
	out, _ = runs(t, 1, nil, "inspect", url, "list")
	require.Contains(t, out, "it is a list, which is no lock")
	for _, format := range []string{"--json=true", "--json=false"} {
		out, _ = runs(t, 0, nil, "inspect", url, format, "--all", "f*")
		require.NotContains(t, out, "\x1b")
		require.NotContains(t, out, "\u009b")
		require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), map[string]int{"--json=true": 1, "--json=false": 2}[format], out)
	}
	out, _ = runs(t, 0, nil, "inspect", url)
	for _, want := range []string{"deploy", "blpop", "job=nightly", "pid="} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "app data")
	out, _ = runs(t, exitNone, nil, "inspect", url, "*a*")
	require.Equal(t, "no lock is held\n", out)
	out, _ = runs(t, 0, nil, "inspect", url, "--values", "--exact", "a*b")
	require.Contains(t, out, `"me\x1b[2J"`, "what others wrote cannot change the screen")

	out, _ = runs(t, 0, nil, "inspect", url, "--json", "deploy")
	var h map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &h))
	require.Equal(t, true, h["held"])
	require.Equal(t, lease.Owner(), h["owner"])
	require.InDelta(t, float64(lease.Token()), h["token"], 32)
	require.Equal(t, "nightly", h["metadata"].(map[string]any)["job"])
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	s, l, _ := server(t)
	url := "--url=setnx+unix://" + s.Socket()
	_, stderr := runs(t, 1, nil, "unlock", "--force", "--yes", url, "k")
	require.Contains(t, stderr, `"k" is free`)
	require.NoError(t, s.Client(t).Set(t.Context(), "data", "precious", 0).Err())
	_, stderr = runs(t, 1, nil, "unlock", "--force", "--yes", url, "data")
	require.Contains(t, stderr, "--unknown")
	require.Equal(t, "precious", s.Client(t).Get(t.Context(), "data").Val())
	runs(t, 0, nil, "unlock", "--force", "--yes", "--unknown", url, "data")
	lease, err := l.Lock(t.Context(), "k", locker.WithTTL(time.Second))
	require.NoError(t, err)
	_, stderr = runs(t, 125, nil, "unlock", url, "k")
	require.Contains(t, stderr, "--force")
	_, stderr = runs(t, 125, strings.NewReader("y\n"), "unlock", "--force", url, "k")
	require.Contains(t, stderr, "--yes")
	_, stderr = runs(t, 125, nil, "unlock", "--force", "--yes", url)
	require.Contains(t, stderr, "KEY is missing")
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)

	out, _ := runs(t, 0, nil, "unlock", "--force", "--yes", url, "k")
	require.Contains(t, out, lease.Owner())
	require.Contains(t, out, "was taken")
	select {
	case <-lease.Lost():
	case <-time.After(patience):
		t.Fatal("the holder was not told")
	}
	free(t, l, "k")
}
