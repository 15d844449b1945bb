package redisconformance

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// New is the constructor of a strategy on one Redis.
type New = func(redis.UniversalClient, ...locker.Option) (*locker.Client, error)

// Strategy is the strategy that is tested. It is taken to claim Fencing.
type Strategy struct {
	Name string
	New  New

	// NewDriver makes its driver without a Locker, for the cases that ask the driver itself.
	// Without it they are left out, as they are on other topologies than Single.
	NewDriver func(redis.UniversalClient) (driver.Driver, error)

	// Its claims; see [conformance.Capabilities].
	StoredHolds bool
	Permits     bool
	Notified    bool
	Fair        bool

	// Topology is how the Redis under it is set up. Default: one server.
	Topology Topology

	// Server, if it is not nil, is a server that is there already and that others may use, too: the
	// suite is to leave it as it is, and touches no key but those that have the Mark. The cases in
	// which servers fail or forget are left out. If the connection to the server is not plain TCP,
	// the cases with faults on this connection are left out, too.
	Server *redis.Options
	// Mark is a string that no other key on Server has.
	Mark string

	// Op says which kind of command a Redis command is, "" for none. Default:
	// the scripts of this module's strategies.
	Op func(cmd []string) conformance.Op

	// Timing of the cases; zero fields mean the defaults.
	Timing conformance.Timing
}

// Harness returns the strategy's [conformance.HarnessMaker]: servers of its own, and a
// proxy between each of them and the Lockers.
func (s Strategy) Harness(tb testing.TB) conformance.Harness {
	tb.Helper()
	s.Mark = ownMark(s.Mark)
	return s.harness(tb)
}

func (s Strategy) harness(tb testing.TB) *harness {
	tb.Helper()
	if s.Op == nil {
		s.Op = opOf
	}
	h := &harness{
		Strategy:   s,
		tb:         tb,
		deployment: s.deploy(tb),
		sent:       make(map[conformance.Op][]*atomic.Int64),
		planted:    make(map[string]string),
	}
	if s.Server == nil {
		require.NoError(tb, h.masters(tb.Context(), func(ctx context.Context, c *redis.Client) error {
			return c.ConfigSet(ctx, "notify-keyspace-events", "Kg$xeh").Err() // for loss detection
		}))
	}
	return h
}

type harness struct {
	Strategy
	*deployment
	tb testing.TB // ends with the harness

	lost    atomic.Int64 // replies
	mu      sync.Mutex
	rules   []*faultproxy.Rule
	sent    map[conformance.Op][]*atomic.Int64 // to each server, by kinds that were asked for
	ends    []func() error                     // of troubles
	planted map[string]string                  // what they hold, by key
}

var _ interface {
	conformance.Harness
	conformance.Constructor
	conformance.Inspector
	conformance.Breaker
	conformance.Planter
	conformance.Faults
	conformance.ServerFaults
	conformance.ChildMaker
	conformance.Wired
} = (*harness)(nil)

func (h *harness) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := h.Strategy.New(h.client(tb), opts...)
	require.NoError(tb, err)
	return l
}

func (h *harness) New(opts ...locker.Option) (locker.Locker, error) {
	return h.Strategy.New(h.direct, opts...)
}

// NewDriver implements [conformance.DriverMaker].
func (h *harness) NewDriver() (driver.Driver, error) { return h.Strategy.NewDriver(h.direct) }

// StoreAddr implements [conformance.Wired]: the port of a server that is killed may go to
// another, its socket does not.
func (h *harness) StoreAddr() string { return h.nodes[0].Socket() }

// NewDriverAt implements [conformance.Wired].
func (h *harness) NewDriverAt(addr string) (driver.Driver, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	h.tb.Cleanup(func() { _ = rdb.Close() })
	return h.Strategy.NewDriver(rdb)
}

func (h *harness) Capabilities() conformance.Capabilities {
	name := h.Name
	if h.topology != Single {
		name += " on " + string(h.topology)
	}
	return conformance.Capabilities{
		Name:        name,
		Fencing:     true,
		StoredHolds: h.StoredHolds,
		Permits:     h.Permits,
		Notified:    h.Notified,
		Fair:        h.Fair,
		Admin:       true,
		Signals:     true,
		Sticky:      true,
		Construct:   true,
		Inspect:     true,
		Break:       true,
		Plant:       true,
		Faults:      len(h.proxies) > 0,
		Scripts:     h.Server == nil,
		Servers:     h.topology == Single && h.Server == nil,
		Processes:   h.Server == nil,
		Drivers:     h.Strategy.NewDriver != nil && h.topology == Single,
		Wired:       h.Strategy.NewDriver != nil && h.topology == Single && h.Server == nil,
		// The topologies of miniredis and of servers given have no keyspace notifications.
		LossDetection: h.Server == nil,
	}
}

func (h *harness) Timing() conformance.Timing { return h.Strategy.Timing }

// ChildSpec implements [conformance.ChildMaker].
func (h *harness) ChildSpec() string { return h.spec() }

// Background reports whether a goroutine is none of a Locker's; see [conformance.DriverHarness].
func (h *harness) Background(stack string) bool {
	for _, its := range []string{
		"/conformance/faultproxy.", "/internal/test/redistest.", "/internal/child.", "/alicebob/miniredis/",
		// The client that the Locker was given finds the master with these.
		"redis/go-redis/v9.(*sentinelFailover)", "redis/go-redis/v9.(*channel)",
		// That client runs this, too, until its first connection shows what the server can do.
		"redis/go-redis/v9/maintnotifications.newCircuitBreakerManager",
	} {
		if strings.Contains(stack, its) {
			return true
		}
	}
	return false
}

// Main runs the tests, or what a child process is to do: it locks with New over
// the Redis it was started for.
func Main(m *testing.M, newLocker New) {
	redis.SetLogger(quiet{})
	conformance.Main(m, childOf(newLocker))
}

// Serve does what [Main] does in a child process, for a program that is no test.
func Serve(newLocker New) { suite.ServeChild(childOf(newLocker)) }

func childOf(newLocker New) func(spec string, opts ...locker.Option) (locker.Locker, error) {
	return func(spec string, opts ...locker.Option) (locker.Locker, error) {
		rdb, err := connect(spec)
		if err != nil {
			return nil, err
		}
		return newLocker(rdb, opts...)
	}
}

// Inspector.
