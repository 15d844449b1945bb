//go:build unix

package main

import (
	"bufio"
	"net/url"
	"strings"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/distlock/locker/cmd/locker/internal/servers/serverstest"
	"github.com/distlock/locker/strategy"
	"github.com/stretchr/testify/require"
)

// TestOtherStores: every command works on the locks of a store that is not Redis.
func TestOtherStores(t *testing.T) {
	t.Parallel()
	for name := range servers.ByStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serverstest.Start(t, name)
			runs(t, 1, nil, "inspect", "--url", s.URL)

			first := command(t, s.URL, "run", "--key", "deploy", "--", "sh", "-c", `echo ready; echo $LOCKER_TOKEN; read x; exit 3`)
			stdin, err := first.StdinPipe()
			require.NoError(t, err)
			first.begin(t)
			token, err := first.stdout.ReadString('\n')
			require.NoError(t, err)
			out, _ := runs(t, 0, nil, "inspect", "--url", s.URL)
			for _, want := range []string{"deploy", name, "pid=", strings.TrimSpace(token)[:8]} {
				require.Contains(t, out, want)
			}
			_, stderr := runs(t, exitNotAcquired, nil, "run", "--url", s.URL, "--key", "deploy", "--wait", "0", "--", "true")
			require.Contains(t, stderr, "was not run")
			_, stderr = runs(t, exitNotAcquired, nil, "ask", "--url", s.URL, "--wait", "10ms", "deploy")
			require.Contains(t, stderr, "still held")
			_, err = stdin.Write([]byte("\n"))
			require.NoError(t, err)
			require.Equal(t, 3, first.code(t))

			held := command(t, s.URL, "hold", "held")
			stdin, err = held.StdinPipe()
			require.NoError(t, err)
			output, err := held.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, held.Start())
			token, err = bufio.NewReader(output).ReadString('\n')
			require.NoError(t, err, held.stderr)
			out, _ = runs(t, 0, nil, "inspect", "--url", s.URL, "held")
			require.Contains(t, out, strings.TrimSpace(token)[:8])
			require.NoError(t, stdin.Close())
			require.Equal(t, 0, held.code(t), held.stderr)
			runs(t, 1, nil, "inspect", "--url", s.URL, "held")

			asked := command(t, s.URL, "run", "--key", "deploy", "--ask-signal", "SIGUSR2", "--", "sh", "-c", heeds)
			asked.begin(t)
			runs(t, 0, nil, "ask", "--url", s.URL, "--wait", patience.String(), "deploy")
			require.Equal(t, 7, asked.code(t))

			lost := command(t, s.URL, "run", "--key", "deploy", "--ttl", "6s", "--", "sh", "-c", `echo ready; exec sleep 60`)
			lost.begin(t)
			out, _ = runs(t, 0, nil, "unlock", "--url", s.URL, "--force", "--yes", "deploy")
			require.Contains(t, out, "was taken")
			require.Equal(t, exitLost, lost.code(t))
			_, stderr = runs(t, 1, nil, "unlock", "--url", s.URL, "--force", "--yes", "deploy")
			require.Contains(t, stderr, "is free")
			runs(t, 1, nil, "inspect", "--url", s.URL, "deploy")
		})
	}
}

// TestOtherStoresRefuse: what is wrong is said with a hint, and without the password.
func TestOtherStoresRefuse(t *testing.T) {
	t.Parallel()
	for name := range servers.ByStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serverstest.Start(t, name)
			right, err := url.Parse(s.URL)
			require.NoError(t, err)
			elsewhere, wrongUser, wrongDatabase := *right, *right, *right
			wrongUser.User, wrongDatabase.Path = url.UserPassword("stranger", "secret"), "/nowhere"
			elsewhere.Host, elsewhere.RawQuery = "127.0.0.1:1", ""
			wrong := map[string]url.URL{"user name and password": wrongUser, "database": wrongDatabase, "is the server up": elsewhere}
			if name == "etcd" { // this one has neither users nor databases
				wrong = map[string]url.URL{"is the server up": elsewhere}
			}
			for hint, u := range wrong {
				for _, args := range []string{"inspect k", "run --wait 0 --key k true"} {
					fields := strings.Fields(args)
					_, stderr := runs(t, exitUnavailable, nil, append([]string{fields[0], "--url", u.String()}, fields[1:]...)...)
					require.Contains(t, stderr, hint)
					require.NotContains(t, stderr, "secret")
				}
			}
			_, stderr := runs(t, exitUsage, nil, "inspect", "--url", right.Scheme+"://app:secret@h/app?nonsense=1&table=a.b.c")
			require.NotContains(t, stderr, "secret")
		})
	}
}

// TestEveryStrategyIsKnown: the help names each strategy that a URL may.
func TestEveryStrategyIsKnown(t *testing.T) {
	t.Parallel()
	for _, name := range knownStrategies() {
		l, release, err := strategy.Open(t.Context(), strategy.Config{Strategy: name})
		if err != nil {
			require.ErrorIs(t, err, locker.ErrInvalid) // of what it wants besides
			continue
		}
		require.NoError(t, l.Close())
		release()
	}
	for _, name := range []string{"setnx", "hashreentrant", "blpop", "redlock", "postgres", "mysql", "etcd"} {
		require.Contains(t, knownStrategies(), name)
		require.Contains(t, storeHelp, name)
	}
}
