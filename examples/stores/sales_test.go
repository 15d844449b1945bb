//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/strategy"
	"github.com/stretchr/testify/require"
)

// runEnv makes the test binary the program.
const runEnv = "STORES_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// The shop sells exactly its stock with locks in each store: only the configuration file differs.
func TestSales(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string){
		"redis": func(t *testing.T) string {
			redis, err := embedredis.Start()
			require.NoError(t, err)
			t.Cleanup(redis.Close)
			return "blpop+" + redis.URL()
		},
		"postgres": func(t *testing.T) string {
			s, err := servers.Postgres()
			require.NoError(t, err)
			return started(t, s, func() string { return "postgres://app@/app?sslmode=disable&host=" + s.Dir })
		},
		"mysql": func(t *testing.T) string {
			s, err := servers.MySQL(false)
			require.NoError(t, err)
			return started(t, s, func() string { return "mysql://app@/app?socket=" + s.Socket() })
		},
		"etcd": func(t *testing.T) string {
			findEtcd(t)
			s, err := servers.Etcd()
			require.NoError(t, err)
			return started(t, s, func() string { return fmt.Sprintf("etcd://127.0.0.1:%d", s.Ports[0]) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			if servers.LeftOut(name) {
				t.Skip("left out")
			}
			for _, variable := range []string{"REDIS_URL", "POSTGRES_URL", "MYSQL_URL", "ETCD_URL"} {
				t.Setenv(variable, "") // no other store
			}
			t.Setenv(map[string]string{"redis": "REDIS_URL", "postgres": "POSTGRES_URL", "mysql": "MYSQL_URL", "etcd": "ETCD_URL"}[name], start(t))
			sale := exec.CommandContext(t.Context(), os.Args[0], "-json", "-buyers", "40", "-stock", "10", "-concurrency", "10", "-config", name+".yaml")
			// The race detector would keep each process for a second at its exit.
			sale.Env = append(os.Environ(), runEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
			var stderr bytes.Buffer
			sale.Stderr = &stderr
			out, err := sale.Output()
			require.NoError(t, err, "%s%s", &stderr, out)
			var results []struct {
				Shops, Sold, Oversold, Refused int
			}
			require.NoError(t, json.Unmarshal(out, &results), string(out))
			require.Len(t, results, 1)
			r := results[0]
			require.Equal(t, []int{4, 10, 0, 30}, []int{r.Shops, r.Sold, r.Oversold, r.Refused})
		})
	}
}

// started starts a server, and returns its URL once a lock there can be taken.
func started(t *testing.T, s *servers.Server, url func() string) string {
	t.Helper()
	t.Cleanup(s.Stop)
	require.NoError(t, s.Start(t.Context(), func(ctx context.Context) error {
		l, release, err := strategy.OpenURL(ctx, url())
		if err != nil {
			return err
		}
		defer release()
		lease, err := l.TryLock(ctx, "ready")
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	}))
	return url()
}

// findEtcd compiles an etcd unless the environment names one.
func findEtcd(t *testing.T) {
	t.Helper()
	if os.Getenv("LOCKER_ETCD_SERVER") != "" {
		return
	}
	dir, err := os.MkdirTemp("", "stores") //nolint:usetesting // the server's user may not enter a t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "etcd")
	out, err := exec.Command("go", "-C", "../../strategy/etcd/internal/member", "build", "-trimpath", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv("LOCKER_ETCD_SERVER", program)
}
