//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/stretchr/testify/assert"
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
	var others []string
	for w.lines.Scan() {
		line := w.lines.Text()
		if want(line) {
			return
		}
		if others = append(others, line); check != nil {
			check(line)
		}
	}
	t.Fatalf("it has ended: %v, %s; it said %q", w.lines.Err(), w.stderr, others)
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

// TestWatch: each change is an event with its time, later than those before it.
func TestWatch(t *testing.T) {
	t.Parallel()
	_, l, url := server(t)
	for _, what := range []string{"k", "*", ""} {
		w, people := watch(t, url, append([]string{"--json"}, strings.Fields(what)...)...), watch(t, url, strings.Fields(what)...)
		var last string
		later := func(line string) {
			at, _ := inJSONLine(t, line)["time"].(string)
			require.NotEmpty(t, at, line)
			require.GreaterOrEqual(t, at, last)
			last = at
		}
		w.until(t, says(`"event":"watching"`, `"held":false`), later)
		people.until(t, says("watching", "0 locks are held"), nil)
		lease, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		w.until(t, says(`"event":"granted","key":"k","held":true`, lease.Owner()), later)
		people.until(t, says("granted", "k", "setnx", lease.Owner(), fmt.Sprint("token ", lease.Token())), nil)
		require.NoError(t, lease.Unlock(t.Context()))
		w.until(t, says(`"event":"released","key":"k","held":false`, lease.Owner()), later)
		people.until(t, says("released", "k", lease.Owner(), "after "), nil)
		w.interrupt(t)
		people.interrupt(t)
	}
}

// TestWatchSaysWho: who waits, who has permits, and whose lease has run out.
func TestWatchSaysWho(t *testing.T) {
	t.Parallel()
	s, _, _ := server(t)
	l, err := blpop.New(s.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	other, err := blpop.New(s.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	w := watch(t, "blpop+unix://"+s.Socket())
	w.until(t, says("watching"), nil)
	lease, err := l.Lock(t.Context(), "k", locker.WithTTL(2*time.Second), locker.WithoutRenewal())
	require.NoError(t, err)
	w.until(t, says("granted"), nil)
	next := make(chan *locker.Lease, 1)
	go func() {
		lease, err := other.Lock(t.Context(), "k", locker.WithTTL(time.Hour))
		assert.NoError(t, err)
		next <- lease
	}()
	w.until(t, says("waiting", "1 waits"), nil)
	w.until(t, says("lost", lease.Owner()), func(line string) { require.NotContains(t, line, "released") })
	w.until(t, says("granted"), nil)
	require.NoError(t, (<-next).Unlock(t.Context()))
	w.until(t, says("released"), nil)

	w.interrupt(t)
	w = watch(t, "setnx+unix://"+s.Socket())
	w.until(t, says("watching"), nil)
	permits := keep(t, "setnx+unix://"+s.Socket(), "run", "--key", "s", "--of", "2", "--", "sh", "-c", "echo ready; cat")
	w.until(t, says("granted", "permits 1 of 2", "command=sh"), nil)
	more := keep(t, "setnx+unix://"+s.Socket(), "run", "--key", "s", "--of", "2", "--", "sh", "-c", "echo ready; cat")
	w.until(t, says("granted", "permits 1 of 2", "command=sh"), nil)
	permits.giveBack(t)
	w.until(t, says("released", "permits 1 of 2", "command=sh"), func(line string) { require.NotContains(t, line, "granted") })
	more.giveBack(t)
	w.interrupt(t)
}

// TestWatchInAnOutage: no lock is called free while nobody knows, and what is as it was makes no event.
func TestWatchInAnOutage(t *testing.T) {
	t.Parallel()
	s, l, url := server(t)
	lease, err := l.Lock(t.Context(), "held", locker.WithTTL(time.Hour))
	require.NoError(t, err)
	var all []watching
	for _, args := range [][]string{{"held"}, {"h*"}, nil, {"--json", "held"}, {"--json", "h*"}} {
		all = append(all, watch(t, url, args...))
	}
	for _, w := range all {
		w.until(t, says("held", "setnx"), nil)
		w.until(t, says("watching"), nil)
	}
	nothing := func(line string) { require.Fail(t, "nothing has changed", line) }
	s.Pause()
	for i, w := range all {
		if i < 3 {
			w.until(t, says("away", "unknown: "), nothing)
		} else {
			w.until(t, says(`"event":"away"`, `"held":null`, `"state":"unknown"`, `"error":"`), nothing)
		}
	}
	s.Resume()
	for _, w := range all {
		w.until(t, says("back"), nothing)
	}
	require.NoError(t, lease.Unlock(t.Context()))
	for _, w := range all {
		w.until(t, says("released"), nothing)
		w.interrupt(t)
		require.Empty(t, w.stderr.String())
	}
}

// TestWatchOfNoLock: a list is no free lock, and nothing is wrong with the store.
func TestWatchOfNoLock(t *testing.T) {
	t.Parallel()
	s, _, url := server(t)
	require.NoError(t, s.Client(t).RPush(t.Context(), "list", "x").Err())
	w := watch(t, url, "list")
	w.until(t, says("data", "list", "it is a list"), func(line string) { require.NotContains(t, line, "free") })
	require.NoError(t, s.Client(t).Del(t.Context(), "list").Err())
	w.until(t, says("free"), func(line string) { require.Contains(t, line, "watching") })
	w.interrupt(t)
	require.Empty(t, w.stderr.String())
	require.NoError(t, s.Client(t).RPush(t.Context(), "list", "x").Err())
	w = watch(t, url, "--json", "list")
	w.until(t, says(`"event":"data"`, `"key":"list"`, `"held":false`, `"state":"data"`, "it is a list"), nil)
	w.interrupt(t)
}

// TestEnds: what is not known is not called a release.
func TestEnds(t *testing.T) {
	t.Parallel()
	at := time.Now()
	held := func(id string, remaining time.Duration) view {
		return view{at: at, rows: []row{{Holder: locker.Holder{Key: "k", Held: true, ID: id, Strategy: "setnx", Remaining: remaining}, state: stateHeld}}}
	}
	none := view{at: at}
	away := view{at: at, err: errors.New("out of luck")}
	for name, c := range map[string]struct {
		looks []view
		want  string
	}{
		"released":                   {[]view{none, held("a", 30*time.Second), none}, "watching granted released"},
		"another one, at once":       {[]view{held("a", 30*time.Second), held("b", 30*time.Second)}, "held watching released granted"},
		"not renewed":                {[]view{held("a", 30*time.Second), held("a", 500*time.Millisecond), none}, "held watching lost"},
		"perhaps renewed since":      {[]view{held("a", time.Second), none}, "held watching gone"},
		"no end, and released":       {[]view{held("a", -1), none}, "held watching released"},
		"in an outage":               {[]view{held("a", 30*time.Second), away, away, none}, "held watching away back gone"},
		"in an outage, the same one": {[]view{held("a", 30*time.Second), away, held("a", 30*time.Second)}, "held watching away back"},
		"away at first":              {[]view{away, away, held("a", 30*time.Second)}, "away held watching"},
	} {
		w := &watcher{f: &inspectFlags{}}
		var got []string
		for i, v := range c.looks {
			v.at = at.Add(time.Duration(i) * time.Second)
			v.done = v.at
			for _, e := range w.look(v) {
				got = append(got, e.what)
			}
		}
		require.Equal(t, c.want, strings.Join(got, " "), name)
	}
}

// TestInspectOfManyKeys: a hundred thousand keys are asked for in batches.
func TestInspectOfManyKeys(t *testing.T) {
	t.Parallel()
	s, l, url := server(t)
	lease, err := l.Lock(t.Context(), "lock 7")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
	for thousand := range 100 {
		script := `for i = 1, 1000 do redis.call("SET", "session:" .. ARGV[1] .. ":" .. i, "x", "EX", 3600) end return 1`
		require.NoError(t, s.Client(t).Eval(t.Context(), script, nil, thousand).Err())
	}
	begun := time.Now()
	out, _ := runs(t, 0, nil, "inspect", "--url", url, "--json")
	require.Len(t, inLines(t, out), 1)
	require.Contains(t, out, `"key":"lock 7"`)
	t.Log(time.Since(begun))
}
