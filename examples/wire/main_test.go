package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

func output(t *testing.T, config, url string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, config, url))
	require.Equal(t, strings.Count(out.String(), "chosen"), strings.Count(out.String(), "  unlocked\n"))
	return out.String()
}

func TestBothWaysOnAServerOfItsOwn(t *testing.T) {
	out := output(t, "", "")
	require.Contains(t, out, "chosen when built: hashreentrant")
	require.Equal(t, 4, strings.Count(out, "entered again: 2 holds"))
}

func TestConfigured(t *testing.T) {
	require.Contains(t, output(t, "", "memory://wire"), `{"url":"memory://wire"}`)
	path := filepath.Join(t.TempDir(), "locks.yaml")
	require.NoError(t, os.WriteFile(path, []byte("strategy: memory\nttl: 5s\n"), 0o600))
	require.Contains(t, output(t, path, ""), `{"strategy":"memory","ttl":"5s"}`)

	require.ErrorIs(t, run(t.Context(), t.Output(), "", "memory://wire?tll=1s"), locker.ErrInvalid)
	require.ErrorIs(t, run(t.Context(), t.Output(), "none.yaml", ""), os.ErrNotExist)
	require.Error(t, run(t.Context(), t.Output(), path, "memory://wire"))
}
