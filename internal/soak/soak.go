package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// Strategy is what is to be tested.
type Strategy struct {
	Name string
	// Nodes is how many independent servers it locks on; 0 means one. With more
	// than one, faults befall a minority at a time, and a node that has lost its
	// data stays away for longer than the longest TTL.
	Nodes int
	// Server is the host:port of a server that the caller runs, in place of a Redis of
	// the run's own: it speaks the Redis protocol and has locks. What befalls single
	// commands befalls EVALSHA and EVAL, what needs a Redis is left out.
	Server string
	// Its claims, to which it is held as in the conformance suite: that the longest
	// waiter is next, that waiters are woken, that holds of one owner in
	// several Lockers are one, and that it has no tokens.
	Fair, Notified, StoredHolds, Unfenced bool
	// Mixed: its processes are of several strategies, and some may share holds.
	Mixed bool
	// New makes a Locker of one process. Closing it leaves the clients open.
	New func(Process) (locker.Locker, error)
}

// Process is what a Locker is made of in one of a strategy's processes.
type Process struct {
	Index   int // so that processes may differ
	Clients []redis.UniversalClient
	Options []locker.Option // to be given to the Locker
}

func indexOf(strategies []Strategy, name string) int {
	return slices.IndexFunc(strategies, func(s Strategy) bool { return s.Name == name })
}

// Config says what to do. Zero fields mean the defaults.
type Config struct {
	// Strategies are tested side by side. The program has to give the same ones
	// to [ServeWorker].
	Strategies []Strategy
	Duration   time.Duration // default 1 min
	Seed       uint64        // default: a random one
	Faults     []string      // names of [Faults]; nil means all, empty none

	Processes int             // of each strategy, default 3
	Callers   int             // of each process, default 16
	Keys      int             // of each strategy, default 64
	TTLs      []time.Duration // default 300 ms, 500 ms and 1 s
	// Storm and Calm are how long faults happen and how long none does, in turn.
	// Defaults 12 s and 8 s.
	Storm, Calm time.Duration
	// Slack is how late a busy machine may make what has to happen within a time.
	// Default 2 s.
	Slack time.Duration

	// Dir is where logs go; those of a round without violations are removed.
	// Default: a new directory below os.TempDir.
	Dir string
	// Logf tells how the run gets on. Default: nobody.
	Logf func(format string, args ...any)
}

// roundLength bounds a round, and so what the checker has in memory.
const roundLength = time.Minute

func (c Config) withDefaults() (Config, error) {
	if len(c.Strategies) == 0 {
		return c, errors.New("soak: no strategies given")
	}
	for _, s := range c.Strategies {
		if s.Name == "" || s.New == nil {
			return c, fmt.Errorf("soak: strategy %q lacks a name or a New", s.Name)
		}
	}
	if c.Faults == nil {
		for _, f := range Faults() {
			c.Faults = append(c.Faults, f.Name)
		}
	}
	for _, name := range c.Faults {
		if !slices.ContainsFunc(Faults(), func(f Fault) bool { return f.Name == name }) {
			return c, fmt.Errorf("soak: no fault %q; there are: %s", name, faultNames())
		}
	}
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.Duration, time.Minute}, {&c.Storm, 12 * time.Second}, {&c.Calm, 8 * time.Second}, {&c.Slack, 2 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	for _, n := range []struct {
		field *int
		def   int
	}{{&c.Processes, 3}, {&c.Callers, 16}, {&c.Keys, 64}} {
		if *n.field == 0 {
			*n.field = n.def
		}
	}
	if len(c.TTLs) == 0 {
		c.TTLs = []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, time.Second}
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()>>1 | 1
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	if c.Dir == "" {
		dir, err := os.MkdirTemp("", "locker-soak-")
		if err != nil {
			return c, err
		}
		c.Dir = dir
	}
	return c, nil
}

func (c Config) maxTTL() time.Duration { return slices.Max(c.TTLs) }

// again are the flags of the command that does round n once more.
func (c Config) again(n int, length time.Duration) string {
	names := make([]string, 0, len(c.Strategies))
	for _, s := range c.Strategies {
		names = append(names, s.Name)
	}
	ttls := make([]string, 0, len(c.TTLs))
	for _, d := range c.TTLs {
		ttls = append(ttls, d.String())
	}
	faults := strings.Join(c.Faults, ",")
	switch len(c.Faults) {
	case 0:
		faults = "none"
	case len(Faults()):
		faults = "all"
	}
	return fmt.Sprintf("-seed=%d -duration=%v -strategies=%s -faults=%s -processes=%d -callers=%d -keys=%d -ttls=%s -storm=%v -calm=%v -slack=%v",
		c.Seed+uint64(n), length.Round(time.Millisecond), strings.Join(names, ","), faults,
		c.Processes, c.Callers, c.Keys, strings.Join(ttls, ","), c.Storm, c.Calm, c.Slack)
}

// Run soaks the strategies for the time given, or until a round has found
// violations or ctx is done; rounds that were begun are checked all the same. The
// error says that the run itself could not go on; what was found is in the Report,
// which is never nil.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults()
	report := newReport(cfg)
	if err != nil {
		return report, err
	}
	end := time.Now().Add(cfg.Duration)
	for n := 0; ; n++ {
		length := min(time.Until(end), roundLength)
		if n > 0 && (length < time.Second || ctx.Err() != nil || len(report.Violations) > 0) {
			break
		}
		r := newRound(ctx, cfg, n, length)
		if err := r.run(report); err != nil {
			return report, fmt.Errorf("soak: round %d, seed %d: %w", n, r.seed, err)
		}
		cfg.Logf("round %d: %s", n, report.line())
	}
	if len(report.Violations) == 0 {
		_ = os.Remove(cfg.Dir) // if nothing of somebody else's is in it
	}
	return report, nil
}
