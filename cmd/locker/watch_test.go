//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

// watching is an inspect --watch.
type watching struct {
	*locked
	lines *bufio.Scanner // of stdout
}

func watch(t *testing.T, url string, args ...string) watching {
	t.Helper()
	w := watching{locked: command(t, url, append([]string{"inspect", "--watch", "--every", "20ms"}, args...)...)}
	r, err := w.StdoutPipe()
	require.NoError(t, err)
	w.lines = bufio.NewScanner(r)
	require.NoError(t, w.Start())
	return w
}

// until reads lines up to the first one that is as wanted; each line before it passes check.
func (w watching) until(t *testing.T, want func(line string) bool, check func(line string)) {
	t.Helper()
	for w.lines.Scan() {
		if line := w.lines.Text(); want(line) {
			return
		} else if check != nil {
			check(line)
		}
	}
	t.Fatalf("it has ended: %s", w.stderr)
}

func (w watching) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, w.Process.Signal(syscall.SIGINT))
	_, _ = io.Copy(io.Discard, w.Stdout.(io.Reader))
	require.Equal(t, 130, w.code(t))
}

func says(parts ...string) func(string) bool {
	return func(line string) bool {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				return false
			}
		}
		return true
	}
}

func inJSONLine(t *testing.T, line string) (one map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(line), &one), line)
	return one
}

func TestWatch(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for _, what := range []string{"k", "*", ""} {
		w := watch(t, url, append([]string{"--json"}, strings.Fields(what)...)...)
		var last string
		later := func(line string) {
			at, _ := inJSONLine(t, line)["time"].(string)
			require.NotEmpty(t, at, line)
			require.GreaterOrEqual(t, at, last)
			last = at
		}
		w.until(t, says(`"held":false`), later)
		lease, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		w.until(t, says(`"key":"k"`, `"held":true`), later)
		require.NoError(t, lease.Unlock(t.Context()))
		w.until(t, says(`"held":false`), later)
		w.interrupt(t)
	}
}

// TestWatchInAnOutage: no lock is called free while nobody knows.
func TestWatchInAnOutage(t *testing.T) {
	t.Parallel()
	s, l, url := server(t)
	_, err := l.Lock(t.Context(), "held", locker.WithTTL(time.Hour))
	require.NoError(t, err)
	byKey, byPattern := watch(t, url, "--json", "held"), watch(t, url, "--json", "h*")
	tables := []watching{watch(t, url, "held"), watch(t, url, "h*"), watch(t, url)}
	all := append(tables, byKey, byPattern)
	for _, w := range all {
		w.until(t, says("held", "setnx"), nil)
	}
	s.Pause()
	for i, w := range tables {
		honest := func(line string) {
			require.NotContains(t, line, "free")
			require.NotContains(t, line, "no lock")
		}
		w.until(t, says("unknown"), honest)
		if i == 0 { // for a pattern the keys may have been listed, and only then the server hangs
			w.until(t, says("held", "unknown", "was setnx"), honest)
		}
	}
	for _, w := range []watching{byKey, byPattern} {
		honest := func(line string) { require.Equal(t, true, inJSONLine(t, line)["held"], line) }
		w.until(t, says(`"held":null`, `"state":"unknown"`, `"error":"`), honest)
	}
	s.Resume()
	for _, w := range all {
		w.until(t, func(line string) bool { return says("held", "setnx")(line) && !says("unknown")(line) }, func(line string) {
			require.NotContains(t, line, "free")
			require.NotContains(t, line, `"held":false`)
		})
		w.interrupt(t)
		require.NotContains(t, w.stderr.String(), "locker: locker:")
		require.Equal(t, 1, strings.Count(w.stderr.String(), "\n"), "one line for the outage: %s", w.stderr)
	}
}

// TestWatchOfNoLock: a list is no free lock, and nothing is wrong with the store.
func TestWatchOfNoLock(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	require.NoError(t, s.Client(t).RPush(t.Context(), "list", "x").Err())
	w := watch(t, url, "list")
	w.until(t, says("list", "it is a list"), func(line string) { require.NotContains(t, line, "free") })
	w.interrupt(t)
	require.Empty(t, w.stderr.String())
	w = watch(t, url, "--json", "list")
	w.until(t, says(`"key":"list"`, `"held":false`, `"state":"data"`, "it is a list"), nil)
	w.interrupt(t)
}
