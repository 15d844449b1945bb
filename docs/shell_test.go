package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/strategy"
	"github.com/distlock/locker/strategy/blpop"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestShellBlocks runs the shell blocks with the built command, on a Redis where a process has
// the lock deploy and another one the lock backup, if the block is about locks that are held.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	bin := commandsIn(t)
	ran := 0
	for _, b := range read(t, "sh", "console") {
		if notRun[b.Name()] != "" || beside[b.Name()] != "" || b.NeedsPostgres() {
			continue
		}
		ran++
		t.Run(b.Name(), func(t *testing.T) {
			srv, dir := redistest.Start(t), t.TempDir()
			record := filepath.Join(dir, "ran")
			script := strings.ReplaceAll(docblocks.Script(b), "localhost:6379", srv.Addr())
			breaks := regexp.MustCompile(`locker unlock .*--force (\w+)`).FindStringSubmatch(script)
			if breaks != nil || strings.Contains(script, "locker inspect") {
				hold(t, srv, map[string]opener{"deploy": openBlpop, "backup": openSetnx})
			}
			sh := exec.Command("sh", "-e", "-x", "-c", script)
			sh.Dir, sh.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RECORD="+record)
			for _, name := range []string{"deploy.sh", "report.sh", "rebuild.sh", "call-the-api.sh"} {
				require.NoError(t, os.Symlink(filepath.Join(bin, "pg_dump"), filepath.Join(dir, name)))
			}
			out, err := sh.CombinedOutput()
			require.NoError(t, err, "%s", out)
			if breaks != nil {
				require.Zero(t, srv.Client(t).Exists(t.Context(), breaks[1]).Val(), "%s\nthe lock is still there", out)
			}
			told, _ := os.ReadFile(record) // each command has got its key, and its token unless it took permits
			require.Regexp(t, `^(\w+ [1-9]\d+\n|(catalogue|api) \n)*$`, string(told))
			require.Equal(t, strings.Count(script, "locker run"), strings.Count(string(told), "\n"))
		})
	}
	require.Greater(t, ran, 2)
}

// commandsIn returns a directory with locker, and with what the pages run under a lock.
func commandsIn(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	out, err := docblocks.Go(filepath.Join(root(t), "cmd/locker"), "build", "-o", filepath.Join(bin, "locker-itself"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, text := range map[string]string{
		// There is no terminal, on which unlock would ask.
		"locker":  `case "$1" in unlock) set -- "$@" --yes;; esac; exec locker-itself "$@"`,
		"pg_dump": `echo "$LOCKER_KEY $LOCKER_TOKEN" >> "$RECORD"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	return bin
}

type opener func(redis.UniversalClient) (*locker.Client, error)

func openBlpop(rdb redis.UniversalClient) (*locker.Client, error) {
	return blpop.New(rdb, locker.WithMetadata())
}
func openSetnx(rdb redis.UniversalClient) (*locker.Client, error) {
	return setnx.New(rdb, locker.WithMetadata())
}

// hold takes a lock by each key, without renewal: one that is broken stays so.
func hold(t *testing.T, srv *redistest.Server, keys map[string]opener) {
	t.Helper()
	for key, open := range keys {
		l, err := open(srv.Client(t))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		_, err = l.Lock(t.Context(), key, locker.WithoutRenewal(), locker.WithTTL(5*time.Minute))
		require.NoError(t, err)
	}
}

// TestConfigBlocks: a YAML block is a configuration that loads.
func TestConfigBlocks(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	for _, b := range read(t, "yaml") {
		name := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(name, []byte(b.Text), 0o600))
		cfg, err := strategy.Load(name)
		require.NoError(t, err, b.Name())
		require.NotEmpty(t, cfg.Strategy, b.Name())
	}
}

// TestACLBlocks: a block without a language has ACL lines, which a server takes as they are, and
// comments. The lines of docs/strategies.md are tested in package strategy, those of the other pages are
// among them.
func TestACLBlocks(t *testing.T) {
	rdb, lines := redistest.Start(t).Client(t), 0
	for _, b := range read(t, "") {
		for line := range strings.Lines(b.Text) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			lines++
			words := strings.Fields(line)
			require.Equal(t, "ACL", words[0], "%s: say in which language it is", b.Name())
			args := make([]any, len(words))
			for i, w := range words {
				args[i] = w
			}
			require.NoError(t, rdb.Do(context.Background(), args...).Err(), line)
		}
	}
	require.Greater(t, lines, 5)
}
