package blocks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/internal/test/docblocks"
	"github.com/distlock/locker/strategy/hashreentrant"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if name := os.Getenv("DOCS_PROGRAM"); name != "" {
		programs[name]()
		return
	}
	os.Exit(m.Run())
}

// checks are the tests of single blocks. Any other block has to succeed.
var checks = map[string]func(*testing.T, func(given) error){
	"docs/configuration.md, Configuration, go 1": func(t *testing.T, run func(given) error) {
		t.Setenv("LOCKER_URL", "memory://docs")
		require.NoError(t, run(newGiven(t)))
	},
	"docs/fencing.md, Redis, go 1":                 refusesLateWrites,
	"docs/getting-started.md, 4. Next steps, go 4": noticesLoss,
	"docs/operating.md, Metrics and alerts, go 1":  underACL("docs/operating.md", "locks"),
	"docs/operating.md, The command, go 1":         underACL("docs/operating.md", "operator"),
}

func TestBlocks(t *testing.T) {
	for name, run := range blocks {
		t.Run(name, func(t *testing.T) {
			if check := checks[name]; check != nil {
				check(t, run)
				return
			}
			succeeds(t, run)
		})
	}
	for name := range checks {
		require.Contains(t, blocks, name, "checked, and not on a page")
	}
}

func client(t *testing.T, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// newGiven is what a block may use, on an empty server.
func newGiven(t *testing.T) given {
	rdb := client(t, &redis.Options{Addr: os.Getenv("DOCS_REDIS")})
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	l, err := hashreentrant.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lease, err := l.Lock(t.Context(), "the lease")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return given{ctx: ctx, l: l, lease: lease, rdb: rdb, n: 9, ship: func(context.Context) error { return nil }}
}

// succeeds: the block returns nil. If it ships, it ships once, and returns every error of ship:
// an order that was not shipped must not pass for one that was.
func succeeds(t *testing.T, run func(given) error) {
	var shipped atomic.Int32
	g := newGiven(t)
	g.ship = func(context.Context) error {
		shipped.Add(1)
		return nil
	}
	require.NoError(t, run(g))
	if shipped.Load() == 0 {
		return
	}
	require.EqualValues(t, 1, shipped.Load())
	within := func(ctx context.Context) error {
		return locker.Do(ctx, g.l, "the lease", func(context.Context) error { return nil }, locker.WithWait(0))
	}
	for what, ship := range map[string]func(context.Context) error{
		"an error":                    func(context.Context) error { return errors.New("no lorry") },
		"a lock that it does not get": func(context.Context) error { return fmt.Errorf("ship: %w", locker.ErrNotAcquired) },
		"a Do that does not run":      within,
	} {
		g := newGiven(t)
		g.ship = ship
		require.Error(t, run(g), "ship failed with %s, and the block returned nil", what)
	}
}

// refusesLateWrites: a write by an earlier owner's token fails, and changes nothing.
func refusesLateWrites(t *testing.T, run func(given) error) {
	late, later := newGiven(t), given{}
	require.NoError(t, late.lease.Unlock(t.Context()))
	later = late
	var err error
	later.lease, err = later.l.Lock(t.Context(), "the lease")
	require.NoError(t, err)
	for range 2 { // an equal token is accepted
		require.NoError(t, run(later))
	}
	require.ErrorIs(t, run(late), fence.ErrStale)
	require.Equal(t, fmt.Sprint(later.lease.Token()), late.rdb.Get(t.Context(), "locker:guard:{report:today}").Val())
}

// noticesLoss: the block returns nil while the lease is held, and ErrLost after it was lost.
func noticesLoss(t *testing.T, run func(given) error) {
	g := newGiven(t)
	require.NoError(t, run(g))
	require.NoError(t, g.rdb.FlushAll(t.Context()).Err())
	require.ErrorIs(t, g.lease.Renew(t.Context()), locker.ErrLost)
	require.ErrorIs(t, run(g), locker.ErrLost)
}

// TestPrograms runs each program. One that is followed by its output, in a console block of the
// section, has to print it, but for the numbers; it is started once for each line.
func TestPrograms(t *testing.T) {
	all, err := docblocks.Read(os.Getenv("DOCS_ROOT"))
	require.NoError(t, err)
	output := make(map[string][]string) // by page and section
	for _, b := range all {
		if b.Lang == "console" {
			output[b.Page+b.Section] = printed(b.Text)
		}
	}
	numbers := regexp.MustCompile(`\d+`)
	for _, b := range all {
		if programs[b.Name()] == nil {
			continue
		}
		t.Run(b.Name(), func(t *testing.T) {
			t.Parallel()
			want := output[b.Page+b.Section]
			var cmds []*exec.Cmd
			var out []strings.Builder = make([]strings.Builder, max(1, len(want)))
			for i := range out {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "DOCS_PROGRAM="+b.Name())
				cmd.Stdout, cmd.Stderr = &out[i], &out[i]
				require.NoError(t, cmd.Start())
				cmds = append(cmds, cmd)
			}
			for i, cmd := range cmds {
				require.NoError(t, cmd.Wait(), out[i].String())
				require.NotEmpty(t, out[i].String())
				if want != nil {
					require.Equal(t, numbers.ReplaceAllString(want[i], "N"), numbers.ReplaceAllString(strings.TrimSpace(out[i].String()), "N"))
				}
			}
		})
	}
}

func printed(console string) (lines []string) {
	for line := range strings.Lines(console) {
		if !strings.HasPrefix(line, "$ ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
