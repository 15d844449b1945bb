//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/test/sqlservers"
)

func TestMain(m *testing.M) {
	child.Serve(writerKind, write)
	os.Exit(m.Run())
}

// TestPauses has fewer pauses than make pauses.
func TestPauses(t *testing.T) {
	if sqlservers.LeftOut("postgres", "mysql") {
		t.Skip("a database is left out")
	}
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+beginMark+"old\n"+endMark+"\nafter\n"), 0o644))
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-n", "24", "-writers", "4", "-docs", page}, &stdout, &stderr)
	require.Zero(t, code, "%s%s", stdout.String(), stderr.String())
	require.Contains(t, stdout.String(), "PostgreSQL  not checked  24           0        24")
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, len(stores), strings.Count(string(text), " | 24 | 24 | 0 |\n"))
	require.True(t, strings.HasPrefix(string(text), "before\n"+beginMark+"24 pauses, 20"), "%s", text)
	require.True(t, strings.HasSuffix(string(text), endMark+"\nafter\n"), "%s", text)
}

// A late write that is let through, and one that is refused for no reason, are seen.
func TestVerdict(t *testing.T) {
	t.Parallel()
	c := &counts{refused: make(map[string]int), wrote: make(map[string]int)}
	for _, store := range stores {
		c.add(resourceName(store, true), true)
		c.add(resourceName(store, false), false)
	}
	require.NoError(t, c.verdict(1))
	c.refused["HTTP, checked"], c.wrote["HTTP, checked"] = 0, 1
	require.EqualError(t, c.verdict(1), "HTTP: of 1 late writes 0 were refused with a check, and 0 without")
	c.refused["HTTP, checked"], c.wrote["HTTP"], c.refused["HTTP"] = 1, 0, 1
	require.Error(t, c.verdict(1))
	require.Error(t, c.verdict(2))
}

func TestRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-n", "0"}, {"-writers", "0"}, {"more"}, {"-nosuch"}} {
		require.Equal(t, exitUsage, run(t.Context(), args, new(bytes.Buffer), new(bytes.Buffer)))
	}
}
