//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExitCodes: every end of a command has its code.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	held, err := l.Lock(t.Context(), "held")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, held.Unlock(context.Background())) })
	file := filepath.Join(t.TempDir(), "locker.yaml")
	require.NoError(t, os.WriteFile(file, []byte("url: "+url+"\n"), 0o600))
	for name, c := range map[string]struct {
		args string
		url  string
		code int
		says string // on stderr
	}{
		"success":         {args: "run --key k -- true"},
		"its own":         {args: "run --key k -- sh -c exit\u00a07", code: 7},
		"its signal":      {args: "run --key k -- sh -c kill\u00a0-9\u00a0$$", code: 128 + 9},
		"flags of its":    {args: "run --key k expr --nonsense = --nonsense"},
		"a file":          {args: "run --config " + file + " --key k -- true", url: " "},
		"taken":           {args: "run --key held --wait 0 -- true", code: 124, says: held.Owner()},
		"taken for long":  {args: "run --key held --wait 3s -- true", code: 124, says: "3s"},
		"taken, own code": {args: "run --key held --wait 0 --conflict-exit-code 1 -- true", code: 1},
		"no server":       {args: "run --key k --wait 0 -- true", url: "setnx+unix:///nowhere.sock", code: 123, says: "nowhere.sock"},
		"no etcd":         {args: "inspect k", url: "etcd://app:secret@127.0.0.1:1?dial_timeout=100ms", code: 123, says: "127.0.0.1:1"},
		"not found":       {args: "run --key k -- nonsense-command", code: 127, says: "nonsense-command"},
		"not executable":  {args: "run --key k -- /etc/passwd", code: 126, says: "/etc/passwd"},
		"no command":      {args: "run --key k", code: 125, says: "COMMAND is missing"},
		"no key":          {args: "run -- true", code: 125, says: "--key is missing"},
		"no store":        {args: "run --key k -- true", url: " ", code: 125, says: "LOCKER_URL"},
		"in memory":       {args: "run --key k -- true", url: "memory://x", code: 125, says: "within one process"},
		"wrong strategy":  {args: "run --key k -- true", url: "none+redis://h", code: 125, says: `unknown strategy "none"`},
		"wrong flag":      {args: "run --nonsense", code: 125, says: "see locker run --help"},
		"wrong wait":      {args: "run --key k --wait -1s -- true", code: 125, says: "--wait"},
		"no such need":    {args: "compare --need fun", code: 125, says: "order, crowd, speed, throughput, contention, interop, crash, failover"},
		"not comparable":  {args: "compare --strategies none", code: 125, says: "setnx, hashreentrant"},
		"not asked":       {args: "compare --url redis://localhost", code: 125, says: "--yes"},
		"out of reach":    {args: "compare --yes --report - --url redis://127.0.0.1:1", code: 123, says: "connection refused"},
		"no runs":         {args: "compare --runs 0", code: 125, says: "--runs=0: 1 to 1000"},
		"no threshold":    {args: "compare --threshold 10", code: 125, says: "a percentage such as 10%"},
		"nothing earlier": {args: "compare --against /etc/hostname", code: 125, says: "no JSON of locker compare"},
		"no report":       {args: "compare --report /nowhere/report.html", code: 125, says: "/nowhere"},
		"short TTL":       {args: "run --key k --ttl 10ms -- true", code: 125, says: "--ttl=10ms: 100ms to 24h"},
		"no hold":         {args: "run --key k --max-hold 0 -- true", code: 125, says: "--max-hold"},
		"a directory":     {args: "run --key k -- /etc", code: 126, says: "/etc"},
		"wrong command":   {args: "rum", code: 125, says: `"rum"`},
		"nothing":         {args: "", code: 125},
		"help":            {args: "run --help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.url == "" {
				c.url = url
			}
			exits(t, c.url, c.args, c.code, c.says)
		})
	}
}

// exits runs a command line, in which a blank that ends no argument is a no-break space.
func exits(t *testing.T, url, line string, code int, says string) {
	t.Helper()
	args := strings.Fields(strings.ReplaceAll(line, "\u00a0", "\x01"))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "\x01", " ")
	}
	cmd := command(t, strings.TrimSpace(url), args...)
	require.NoError(t, cmd.Start())
	require.Equal(t, code, cmd.code(t), cmd.stderr)
	require.Contains(t, cmd.stderr.String(), says)
	require.NotContains(t, cmd.stderr.String(), "locker: locker:")
	if code == 0 {
		require.Empty(t, cmd.stderr.String())
	}
}
