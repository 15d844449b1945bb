package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masterName is the Sentinels' name of the master that they watch.
const masterName = "redistest"

// A Sentinel is a master with replicas, and Sentinels that watch them.
//
// Like a [Cluster] it does not fail over by itself because the machine is busy;
// see [Sentinel.Failover] and [Sentinel.KillMaster].
type Sentinel struct {
	data      []*Server
	dataAdmin []*redis.Client
	watch     []*Server
	sentinels []*redis.SentinelClient
	changed   atomic.Bool // it is no longer as it was started
}

// StartSentinel starts a master with so many replicas, watched by so many
// Sentinels, for this test. The options are for the servers that hold data.
func StartSentinel(tb testing.TB, replicas, sentinels int, opts ...Option) *Sentinel {
	tb.Helper()
	s, err := launchSentinel(replicas, sentinels, opts...)
	if err != nil {
		tb.Fatalf("redistest: sentinel: %v", err)
	}
	tb.Cleanup(s.discard)
	return s
}

const (
	patience       = 10 * time.Minute // of Sentinels with a master that does not answer
	failoverWithin = 5 * time.Second  // else they give up and may begin anew
)

func launchSentinel(replicas, sentinels int, opts ...Option) (s *Sentinel, err error) {
	s = &Sentinel{}
	defer func() {
		if err != nil {
			s.discard()
		}
	}()
	opts = append([]Option{WithConfig("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")}, opts...)
	if s.data, err = launchAll(1+replicas, opts...); err != nil {
		return s, err
	}
	ctx := context.Background()
	master := s.data[0]
	for i, d := range s.data {
		s.dataAdmin = append(s.dataAdmin, d.admin())
		if i > 0 {
			if err = s.dataAdmin[i].ReplicaOf(ctx, "127.0.0.1", strconv.Itoa(master.port)).Err(); err != nil {
				return s, err
			}
		}
	}
	// Sentinels look for replicas when they first see the master and then
	// every ten seconds.
	for _, replica := range s.dataAdmin[1:] {
		if err = until("a replica has its master's data", func(ctx context.Context) error { return follows(ctx, replica) }); err != nil {
			return s, err
		}
	}
	if s.watch, err = launchAll(sentinels, func(c *config) { c.sentinel = true }); err != nil {
		return s, err
	}
	for _, w := range s.watch {
		c := redis.NewSentinelClient(w.admin().Options())
		s.sentinels = append(s.sentinels, c)
		// They find one another by messages they send every two seconds; not
		// every version can be made to hurry.
		_ = c.Process(ctx, redis.NewCmd(ctx, "sentinel", "debug", "publish-period", 100))
		if err = c.Monitor(ctx, masterName, "127.0.0.1", strconv.Itoa(master.port), strconv.Itoa(sentinels/2+1)).Err(); err != nil {
			return s, err
		}
		if err = errors.Join(s.set(c, "down-after-milliseconds", patience), s.set(c, "failover-timeout", failoverWithin)); err != nil {
			return s, err
		}
	}
	if err = s.settle(len(s.data) - 1); err != nil {
		return s, err
	}
	for _, c := range s.sentinels {
		_ = c.Process(ctx, redis.NewCmd(ctx, "sentinel", "debug", "publish-period", 2000))
	}
	return s, nil
}

func (s *Sentinel) set(c *redis.SentinelClient, option string, d time.Duration) error {
	return c.Set(context.Background(), masterName, option, strconv.FormatInt(d.Milliseconds(), 10)).Err()
}

// settle waits until each Sentinel knows of the others and of so many replicas.
func (s *Sentinel) settle(replicas int) error {
	for _, c := range s.sentinels {
		if err := until("a Sentinel knows of all others", func(ctx context.Context) error {
			others, err := c.Sentinels(ctx, masterName).Result()
			if err != nil {
				return err
			}
			known, err := c.Replicas(ctx, masterName).Result()
			if err == nil && (len(others) != len(s.sentinels)-1 || len(known) != replicas) {
				err = fmt.Errorf("it knows %d others and %d replicas", len(others), len(known))
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// sentinelConf returns the file a Sentinel keeps its state in; it insists on one.
func (s *Server) sentinelConf() string {
	path := filepath.Join(s.runDir, "sentinel.conf")
	if f, err := os.OpenFile(path, os.O_CREATE, 0o600); err == nil {
		_ = f.Close() // if it cannot be made, the server says so
	}
	return path
}

// Options returns client options that find the master through the Sentinels;
// the caller may change them.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.Addrs()}
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, 0, len(s.watch))
	for _, w := range s.watch {
		addrs = append(addrs, w.Addr())
	}
	return addrs
}

// Client returns a new client that follows the master, closed when the test is
// over.
func (s *Sentinel) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewFailoverClient(s.Options())
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// Nodes returns all servers that hold data; the first was started as the master.
func (s *Sentinel) Nodes() []*Server { return slices.Clone(s.data) }

// Sentinels returns the servers of the Sentinels, in the order of Addrs.
func (s *Sentinel) Sentinels() []*Server { return slices.Clone(s.watch) }

// Master returns the present master, as the Sentinels see it.
func (s *Sentinel) Master(tb testing.TB) *Server {
	tb.Helper()
	return s.data[s.master(tb)]
}

// Replicas returns the servers that run and are not the master.
func (s *Sentinel) Replicas(tb testing.TB) []*Server {
	tb.Helper()
	master := s.Master(tb)
	return slices.DeleteFunc(s.Nodes(), func(d *Server) bool { return d == master || !d.running() })
}

func (s *Sentinel) master(tb testing.TB) int {
	tb.Helper()
	i, err := s.masterOf(tb.Context(), s.sentinels[0])
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return i
}

func (s *Sentinel) masterOf(ctx context.Context, c *redis.SentinelClient) (int, error) {
	at, err := c.GetMasterAddrByName(ctx, masterName).Result()
	if err != nil {
		return -1, err
	}
	addr := net.JoinHostPort(at[0], at[1])
	i := slices.IndexFunc(s.data, func(d *Server) bool { return d.Addr() == addr })
	if i < 0 {
		return -1, fmt.Errorf("the master is said to be %s, which is none of ours", addr)
	}
	return i, nil
}

// Failover lets the Sentinels promote a replica. It returns when they name it as
// the master. They let the old one go on as a master of its own for some ten
// seconds more, as Sentinels do.
func (s *Sentinel) Failover(tb testing.TB) {
	tb.Helper()
	s.changed.Store(true)
	s.promote(tb, s.master(tb))
}

// KillMaster kills the master and has the Sentinels promote a replica, which may
// lack the last writes (and does after StopReplication). It returns the old master,
// which is down.
func (s *Sentinel) KillMaster(tb testing.TB) *Server {
	tb.Helper()
	s.changed.Store(true)
	old, replicas := s.master(tb), s.Replicas(tb)
	s.data[old].Kill()
	resume(replicas)
	s.promote(tb, old)
	return s.data[old]
}

// promote makes the Sentinels promote a replica, and waits until all of them name
// another master than old.
func (s *Sentinel) promote(tb testing.TB, old int) {
	tb.Helper()
	err := until("a replica becomes the master", func(ctx context.Context) error {
		for _, c := range s.sentinels {
			i, err := s.masterOf(ctx, c)
			if err != nil {
				return err
			}
			if i == old {
				return errors.Join(errors.New("it is still the old one"), s.startFailover(ctx, old))
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("redistest: failover: %v", err)
	}
}

// startFailover asks for a failover from old, unless one is under way: asked for while
// that ends, a second one would lead back to old. It is refused while the Sentinel does
// not know how the replicas are.
func (s *Sentinel) startFailover(ctx context.Context, old int) error {
	c := s.sentinels[0]
	m, err := c.Master(ctx, masterName).Result()
	if err != nil || strings.Contains(m["flags"], "failover_in_progress") || net.JoinHostPort(m["ip"], m["port"]) != s.data[old].Addr() {
		return err
	}
	return c.Failover(ctx, masterName).Err()
}

func (s *Sentinel) discard() {
	for _, c := range s.sentinels {
		_ = c.Close()
	}
	for _, c := range s.dataAdmin {
		_ = c.Close()
	}
	discardAll(s.watch)
	discardAll(s.data)
}

// empty deletes everything on the master.
func (s *Sentinel) empty() error { return s.dataAdmin[0].FlushAll(context.Background()).Err() }
