package redisconformance

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// NewQuorum is the constructor of a strategy on several independent Redis servers.
type NewQuorum = func([]redis.UniversalClient, ...locker.Option) (*locker.Client, error)

// Quorum is a strategy on several independent Redis servers, a majority of which
// decides. Fencing and wake-ups are taken to be claimed.
type Quorum struct {
	Name string
	New  NewQuorum
	// NewDriver makes its driver without a Locker; see [Strategy].
	NewDriver func([]redis.UniversalClient) (driver.Driver, error)
	Nodes     int // servers; default 5

	// Servers, if there are any, are there already; see [Strategy].Server.
	Servers []*redis.Options
	Mark    string

	// Dead of the servers are down all the time, and BlackHoled others swallow
	// what is sent to them. Either rules out the cases in which servers fail.
	Dead, BlackHoled int

	// Direct lets the Lockers reach the servers without proxies (but for those that
	// are black-holed). That saves time and memory, and rules out the cases that need
	// faults.
	Direct bool

	// Op says which kind of command a Redis command is, "" for none. Default:
	// the scripts of this module's strategies.
	Op func(cmd []string) conformance.Op

	// Timing of the cases; zero fields mean the defaults.
	Timing conformance.Timing
}

// Harness returns the strategy's [conformance.HarnessMaker]: servers of its own, and a proxy
// between each of them and the Lockers. What is done to the store is done to all servers that are
// up. The store contains what a majority of them contains. A fault of the next command concerns
// the next command at each server.
func (q Quorum) Harness(tb testing.TB) conformance.Harness {
	tb.Helper()
	switch {
	case len(q.Servers) > 0:
		q.Nodes = len(q.Servers)
	case q.Nodes == 0:
		q.Nodes = 5
	}
	q.Mark = ownMark(q.Mark)
	h := &quorumHarness{Quorum: q, tb: tb}
	for i := range q.Nodes {
		of := Strategy{Name: q.Name, Op: q.Op}
		if len(q.Servers) > 0 {
			of.Server, of.Mark = q.Servers[i], q.Mark
		}
		n := of.harness(tb)
		h.all = append(h.all, n)
		switch {
		case i < q.Dead:
			n.nodes[0].Kill()
			require.NoError(tb, n.Refuse()) // for whoever gets its port
		case i < q.Dead+q.BlackHoled:
			h.holes = append(h.holes, n)
		default:
			h.up = append(h.up, n)
		}
	}
	require.NoError(tb, h.Heal())
	return h
}

type quorumHarness struct {
	Quorum
	tb    testing.TB // ends with the harness
	all   []*harness // one for each server
	holes []*harness
	up    []*harness
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
	conformance.DriverMaker
} = (*quorumHarness)(nil)

func (h *quorumHarness) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := h.Quorum.New(h.clients(tb), opts...)
	require.NoError(tb, err)
	return l
}

// clients makes the clients of one process.
func (h *quorumHarness) clients(tb testing.TB) (rdbs []redis.UniversalClient) {
	tb.Helper()
	for _, n := range h.all {
		o := n.options()
		if h.Direct {
			o.Addr = h.addr(n)
		}
		// There are many connections: with small buffers, for memory is watched, and
		// without a ceremony at the beginning.
		o.ReadBufferSize, o.WriteBufferSize = 4<<10, 4<<10
		o.DisableIdentity = true
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		rdb := redis.NewClient(o)
		tb.Cleanup(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	return rdbs
}

// NewDriver implements [conformance.DriverMaker].
func (h *quorumHarness) NewDriver() (driver.Driver, error) {
	return h.Quorum.NewDriver(h.clients(h.tb))
}

// addr returns where a server is reached without a proxy, unless the proxy makes it a
// black hole: at its socket, because the port of a server that is down may go to
// another.
func (h *quorumHarness) addr(n *harness) string {
	if slices.Contains(h.holes, n) {
		return n.proxy().Addr()
	}
	return n.nodes[0].Socket()
}

func (h *harness) proxy() *faultproxy.Proxy { return h.proxies[h.nodes[0].Addr()] }

func (h *quorumHarness) New(opts ...locker.Option) (locker.Locker, error) {
	var rdbs []redis.UniversalClient
	for _, n := range h.all {
		rdbs = append(rdbs, n.direct)
	}
	return h.Quorum.New(rdbs, opts...)
}

func (h *quorumHarness) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{
		Name:      h.Name,
		Fencing:   true,
		Admin:     true,
		Signals:   true,
		Notified:  true,
		Quorum:    true,
		Construct: true,
		Inspect:   true,
		Break:     true,
		Plant:     true,
		Faults:    !h.Direct && len(h.all[0].proxies) > 0,
		Scripts:   !h.Direct && len(h.Servers) == 0,
		Servers:   !h.Direct && len(h.Servers) == 0 && len(h.up) == len(h.all),
		Processes: len(h.Servers) == 0,
		Drivers:   h.Quorum.NewDriver != nil,
	}
}

func (h *quorumHarness) Timing() conformance.Timing { return h.Quorum.Timing }

// ChildSpec implements [conformance.ChildMaker].
func (h *quorumHarness) ChildSpec() string {
	var specs []string
	for _, n := range h.all {
		specs = append(specs, string(Single)+";"+h.addr(n))
	}
	return strings.Join(specs, ",")
}

// MainQuorum is [Main] for a strategy on several servers.
func MainQuorum(m *testing.M, newLocker NewQuorum) {
	conformance.Main(m, childOfQuorum(newLocker))
}

// ServeQuorum is [Serve] for a strategy on several servers.
func ServeQuorum(newLocker NewQuorum) { suite.ServeChild(childOfQuorum(newLocker)) }

func childOfQuorum(newLocker NewQuorum) func(specs string, opts ...locker.Option) (locker.Locker, error) {
	return func(specs string, opts ...locker.Option) (locker.Locker, error) {
		var rdbs []redis.UniversalClient
		for spec := range strings.SplitSeq(specs, ",") {
			rdb, err := connect(spec)
			if err != nil {
				return nil, err
			}
			rdbs = append(rdbs, rdb)
		}
		return newLocker(rdbs, opts...)
	}
}

func (h *quorumHarness) Background(stack string) bool { return h.all[0].Background(stack) }

// each runs f for each server that is up, at the same time.
func (h *quorumHarness) each(f func(n *harness) error) error {
	errs := make([]error, len(h.up))
	var wg sync.WaitGroup
	for i, n := range h.up {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (h *quorumHarness) majority() int { return h.Nodes/2 + 1 }

// Faults.

func (h *quorumHarness) LoseReply(op conformance.Op) error {
	return h.each(func(n *harness) error { return n.LoseReply(op) })
}

func (h *quorumHarness) Repeat(op conformance.Op) error {
	return h.each(func(n *harness) error { return n.Repeat(op) })
}

func (h *quorumHarness) DelayReply(op conformance.Op, d time.Duration) error {
	return h.each(func(n *harness) error { return n.DelayReply(op, d) })
}

func (h *quorumHarness) Refuse() error { return h.each((*harness).Refuse) }

func (h *quorumHarness) BlackHole() error { return h.each((*harness).BlackHole) }

func (h *quorumHarness) Slow(d time.Duration) error {
	return h.each(func(n *harness) error { return n.Slow(d) })
}

func (h *quorumHarness) Sent(op conformance.Op) (most int) {
	for _, n := range h.up {
		most = max(most, n.Sent(op))
	}
	return most
}

// Heal undoes what the above did, not what the harness began with.
func (h *quorumHarness) Heal() error {
	errs := []error{h.each((*harness).Heal)}
	for _, n := range h.holes {
		errs = append(errs, n.BlackHole())
	}
	return errors.Join(errs...)
}

func (h *quorumHarness) CutNotifications() error { return h.each((*harness).CutNotifications) }

func (h *quorumHarness) ForgetScripts() error { return h.each((*harness).ForgetScripts) }
