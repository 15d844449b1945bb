package soak

import (
	"cmp"
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

// Topology is how servers are set up.
type Topology string

// The topologies.
const (
	Single   Topology = "single"   // one server, which logs its writes to a file
	Sentinel Topology = "sentinel" // a master and a replica, watched by a Sentinel
	Cluster  Topology = "cluster"  // a Redis Cluster: three masters with a replica each
	Quorum   Topology = "quorum"   // five independent masters
)

// Topologies lists all of them. A program may have an [Own] one.
func Topologies() []Topology { return []Topology{Single, Sentinel, Cluster, Quorum} }

// Strategy is one strategy under test.
type Strategy struct {
	Name string
	On   []Topology // those that it runs on
	// Acked: a grant or a renewal counts only once all replicas have confirmed it, so that it
	// survives the loss of its master.
	Acked bool
	// Permits is how many each key has: callers take one or more of them. With driver.MaxPermits the
	// keys are RWLocks. Where it is 0 they are locks.
	Permits int
	// New makes a Locker of one process. Closing it leaves the clients open.
	New func(Process) (locker.Locker, error)
}

// key returns the name of the strategy's n-th key.
func (s Strategy) key(n int) string { return fmt.Sprintf("%s:k%d", s.Name, n) }

// Process has what a Locker is made from in one of the processes.
type Process struct {
	Index   int                     // so that processes may differ
	Clients []redis.UniversalClient // one, or on Quorum one for each server; none on an Own topology
	Addrs   []string                // on an Own topology: the links to the servers
	Options []locker.Option
}

// Config says what to do. Zero fields mean the defaults.
type Config struct {
	// Strategies are tested side by side. The program has to give the same ones
	// to [ServeWorker].
	Strategies []Strategy
	Topologies []Topology    // default: all that the strategies run on
	Own        *Own          // a further topology
	Duration   time.Duration // default 1 min, without a limit if Operations is set
	Operations int           // the run ends after so many; 0: only Duration counts
	Seed       uint64        // default: a random one
	Faults     []string      // names of [Faults] and of Own.Faults; nil means all, empty none

	Processes int             // of each topology, default 3
	Callers   int             // of each strategy in a process, default 8
	Keys      int             // of each strategy on a topology, default 32
	TTLs      []time.Duration // default: from 300 ms to 1 s, and to 2 s where there are replicas
	Storm     time.Duration   // how long faults happen at a time, default 12 s
	Calm      time.Duration   // how long none happens then, default 10 s
	Slack     time.Duration   // how late a busy machine may make things, default 2 s

	// Server is the host:port of a server of the caller's, in place of the Redis of
	// Single: it speaks the Redis protocol and has locks.
	Server string
	// Dir is where logs go; those of a round without violations are removed.
	// Default: a new directory below os.TempDir.
	Dir string
	// Record, if set, is a file of runs to which Main adds this one; see [Past].
	Record string
	// Progress, if set, is called twice a second with the state of the run.
	Progress func(line string)
}

// again returns the flags that repeat a run with cfg, besides the seed, the strategies, the topologies and the faults.
func (c Config) again() string {
	return fmt.Sprintf("-callers=%d -keys=%d -slack=%v", c.Callers, c.Keys, c.Slack)
}

// roundLength bounds a round, and so what the checker has in memory.
const roundLength = time.Minute

func (c Config) withDefaults() (_ Config, err error) {
	if c.Duration == 0 && c.Operations > 0 {
		c.Duration = 365 * 24 * time.Hour
	}
	c.Duration = cmp.Or(c.Duration, time.Minute)
	c.Storm, c.Calm, c.Slack = cmp.Or(c.Storm, 12*time.Second), cmp.Or(c.Calm, 10*time.Second), cmp.Or(c.Slack, 2*time.Second)
	c.Processes, c.Callers, c.Keys = cmp.Or(c.Processes, 3), cmp.Or(c.Callers, 8), cmp.Or(c.Keys, 32)
	c.Seed = cmp.Or(c.Seed, rand.Uint64()>>1|1)
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Faults == nil {
		c.Faults = c.faultNames()
	}
	if c.Topologies == nil {
		c.Topologies = c.topologies()
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if c.Dir == "" {
		c.Dir, err = os.MkdirTemp("", "locker-soak-")
	}
	return c, err
}

func (c Config) check() error {
	runs := 0
	for _, t := range c.Topologies {
		if !slices.Contains(c.topologies(), t) {
			return fmt.Errorf("soak: no topology %q; there are: %v", t, c.topologies())
		}
		runs += len(c.strategiesOn(t))
	}
	if runs == 0 {
		return errors.New("soak: no strategy runs on the topologies given")
	}
	for _, name := range c.Faults {
		if !slices.Contains(c.faultNames(), name) {
			return fmt.Errorf("soak: no fault %q; there are: %s", name, strings.Join(c.faultNames(), ", "))
		}
	}
	return nil
}

// strategiesOn returns the strategies that run on t.
func (c Config) strategiesOn(t Topology) (some []Strategy) {
	for _, s := range c.Strategies {
		if slices.Contains(s.On, t) {
			some = append(some, s)
		}
	}
	return some
}

// ttls returns the TTLs of leases on t. A failover takes a second or so: with shorter leases
// alone no lock would be left that it could lose.
func (c Config) ttls(t Topology) []time.Duration {
	switch {
	case len(c.TTLs) > 0:
		return c.TTLs
	case c.isOwn(t):
		return c.Own.TTLs
	case t == Sentinel || t == Cluster:
		return []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}
	}
	return []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, time.Second}
}
