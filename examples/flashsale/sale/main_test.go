package sale

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/internal/child"
	"github.com/distlock/locker/internal/embedredis"
	"github.com/distlock/locker/strategy"
	"github.com/stretchr/testify/require"
)

// runEnv makes the test binary the program, race detector included.
const runEnv = "FLASHSALE_TEST_RUN"

func TestMain(m *testing.M) {
	child.Serve(shopKind, serve)
	if os.Getenv(runEnv) != "" {
		Main()
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	// The race detector would keep each process for a second at its exit.
	cmd.Env = append(os.Environ(), runEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd
}

// sell runs the program and returns its results and its exit code.
func sell(t *testing.T, args ...string) ([]result, int) {
	t.Helper()
	cmd := command(t, append([]string{"-json"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Logf("%v: %v\n%s", args, err, stderr.String())
	var results []result
	if stdout.Len() > 0 {
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &results), stdout.String())
	}
	return results, cmd.ProcessState.ExitCode()
}

func TestSale(t *testing.T) {
	const buyers, stock = 80, 20
	results, code := sell(t, "-buyers", "80", "-stock", "20", "-concurrency", "20")
	require.Equal(t, cli.OK, code)
	require.Len(t, results, len(methods))
	for i, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			r := results[i]
			t.Logf("%+v", r)
			require.Equal(t, m.name, r.Strategy)
			require.True(t, r.OK, r.Verdict)
			require.Equal(t, buyers, r.Sold+r.Refused)
			if m.careless != nil {
				require.Positive(t, r.Oversold)
				return
			}
			require.Equal(t, stock, r.Sold)
			require.Zero(t, r.Oversold)
		})
	}
}

func TestFewerBuyersThanUnits(t *testing.T) {
	results, code := sell(t, "-strategy", "memory", "-buyers", "5", "-stock", "9", "-concurrency", "3")
	require.Equal(t, cli.OK, code)
	require.Len(t, results, 1)
	require.Equal(t, 5, results[0].Sold)
	require.NotEmpty(t, results[0].Note)
}

func TestEveryStrategyIsThere(t *testing.T) {
	for _, name := range strategy.Names() {
		m, err := find(name)
		require.NoError(t, err)
		require.Nil(t, m.careless, name)
	}
}

// TestConfig: the file configures the Locker, in the sale's Redis or its own.
func TestConfig(t *testing.T) {
	few := []string{"-buyers", "20", "-stock", "9", "-concurrency", "3"}
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	redis, err := embedredis.Start()
	require.NoError(t, err)
	t.Cleanup(redis.Close)
	for name, path := range map[string]string{
		"blpop":   "../blpop.yaml",
		"setnx":   write("setnx.yaml", "url: setnx+"+redis.URL()+"\nttl: 5s\n"),
		"redlock": write("redlock.json", `{"strategy": "redlock", "fencing": false}`),
		"memory":  write("memory.yaml", "strategy: memory"),
	} {
		results, code := sell(t, append(few, "-config", path)...)
		require.Equal(t, cli.OK, code, path)
		require.Len(t, results, 1)
		require.Equal(t, name, results[0].Strategy)
		require.Equal(t, 9, results[0].Sold)
	}
	for _, args := range [][]string{
		{"-config", "../blpop.yaml", "-strategy", "blpop"},
		{"-config", write("none.yaml", "strategy: none")},
		{"-config", write("wrong.yaml", "strategy: blpop\ntll: 5s")},
		{"-config", "nowhere.yaml"},
	} {
		_, code := sell(t, args...)
		require.Equal(t, cli.BadUsage, code, args)
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-strategy", "none,hope"},
		{"-shops", "0"},
		{"-nonsense"},
		{"argument"},
		{"-paused", "-strategy", "none,naive,memory"},
		{"-paused", "-shops", "1"},
		{"-paused", "-concurrency", "15"},
	} {
		_, code := sell(t, args...)
		require.Equal(t, cli.BadUsage, code, args)
	}
	_, code := sell(t, "-h")
	require.Equal(t, cli.OK, code)
}

func TestUnusableRedis(t *testing.T) {
	for _, url := range []string{"redis://127.0.0.1:1", "nonsense"} {
		results, code := sell(t, "-redis", url)
		require.Empty(t, results)
		require.Equal(t, cli.Failed, code, url)
	}
}

func TestVerdict(t *testing.T) {
	careless, err := find("none")
	require.NoError(t, err)
	proper, err := find("memory")
	require.NoError(t, err)
	cfg := config{buyers: 20, stock: 10}
	for _, tc := range []struct {
		m            method
		sold, failed int64
		ok           bool
		oversold     int
		verdict      string
	}{
		{careless, 13, 0, true, 3, "oversold, as expected"},
		{careless, 10, 0, true, 0, "got away with it"},
		{proper, 10, 0, true, 0, "ok"},
		{proper, 11, 0, false, 1, "OVERSOLD"},
		{proper, 9, 0, false, 0, "LEFT 1 UNSOLD"},
		{proper, 10, 1, false, 0, "FAILED: 1 request, first: boom"},
		{careless, 11, 2, false, 1, "FAILED: 2 requests, first: boom"},
	} {
		c := &crowd{failure: errors.New("boom")}
		c.sold.Store(tc.sold)
		c.failed.Store(tc.failed)
		r := newResult(tc.m, cfg, c, time.Second)
		require.Equal(t, tc.verdict, r.Verdict)
		require.Equal(t, tc.ok, r.OK, r.Verdict)
		require.Equal(t, tc.oversold, r.Oversold, r.Verdict)
	}
}

func TestTable(t *testing.T) {
	got := table([]result{
		{Strategy: "none", Shops: 4, Sold: 600, Oversold: 500, Duration: 320 * time.Millisecond, Verdict: "oversold, as expected"},
		{Strategy: "hashreentrant", Shops: 12, Sold: 100, Refused: 500, WaitP50: 1234 * time.Microsecond, WaitP99: time.Second,
			Duration: time.Minute, Verdict: "ok", Note: "a note"},
	})
	require.Equal(t, `
STRATEGY       SHOPS  SOLD  OVERSOLD  REFUSED  WAIT P50   WAIT P99  DURATION  VERDICT
none               4   600       500        0    0.0 ms     0.0 ms     0.3 s  oversold, as expected
hashreentrant     12   100         0      500    1.2 ms  1000.0 ms    60.0 s  ok

a note.
`, got)
}

func TestPercentile(t *testing.T) {
	require.Zero(t, percentile(nil, 99))
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	require.Equal(t, time.Duration(50), percentile(hundred, 50))
	require.Equal(t, time.Duration(99), percentile(hundred, 99))
	require.Equal(t, time.Duration(7), percentile([]time.Duration{7}, 50))
}
