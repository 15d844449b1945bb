//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHints: where the server has answered, the hint is about its answer.
func TestHints(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	s.AddUser(t, "low", "secret", "~*", "+ping")
	for name, c := range map[string]struct{ url, hint string }{
		"wrong password":   {"redis://low:nonsense@" + s.Addr(), "user name and password"},
		"no permission":    {"redis://low:secret@" + s.Addr(), "Permissions"},
		"no such database": {"redis://" + s.Addr() + "/4711", "database"},
		"no cluster":       {"redis-cluster://" + s.Addr(), "without -cluster"},
		"nothing there":    {"redis://127.0.0.1:1", "address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, args := range []string{"inspect --url %s k", "run --wait 0 --url %s --key k true"} {
				_, stderr := runs(t, exitUnavailable, nil, strings.Fields(fmt.Sprintf(args, "setnx+"+c.url))...)
				require.Contains(t, stderr, c.hint)
				require.Equal(t, name == "nothing there", strings.Contains(stderr, "is the server up"), stderr)
				require.NotContains(t, stderr, "secret")
			}
		})
	}
}

// TestWrongURLs: an error says what was typed, and where it stands.
func TestWrongURLs(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"localhost:6379", `--url "localhost:6379"`},
		{"bogus", "setnx+redis://"},
		{"postgresq://user:secret@h/db", `unknown strategy "postgresq"`},
		{"redis://user:secret@h", "setnx+redis://"},
		{"none+redis://user:secret@h", `unknown strategy "none"`},
		{"setnx+redis://h/x", "--url: "},
		{"user:secret@h", "--url is no URL"},
	} {
		_, stderr := runs(t, exitUsage, nil, "inspect", "--url", c.url)
		require.Contains(t, stderr, c.says)
		for _, not := range []string{"secret", "xxxxx", "package", "memory"} {
			require.NotContains(t, stderr, not)
		}
		t.Setenv("LOCKER_URL", c.url)
		_, stderr = runs(t, exitUsage, nil, "inspect")
		require.Contains(t, stderr, "LOCKER_URL")
		require.NotContains(t, stderr, "secret")
	}
}

// TestHintsOfPorts: a port is not taken for the code of an error.
func TestHintsOfPorts(t *testing.T) {
	for _, url := range []string{"postgres://app@127.0.0.1:28000/db", "postgres://app@127.0.0.1:42501/db"} {
		_, stderr := runs(t, exitUnavailable, nil, "inspect", "--url", url, "k")
		require.Contains(t, stderr, "is the server up")
	}
}
