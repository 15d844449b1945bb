package strategies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	// watchedTTL is so long that no renewal comes by itself while a test waits.
	watchedTTL = time.Hour
	// changeTakes is how long a change of servers may take until a Locker has followed it: a busy machine
	// may take ten times as long as an idle one.
	changeTakes = 2 * time.Minute
)

// changes are what others do to a key that is held.
var changes = map[string]func(ctx context.Context, rdb redis.UniversalClient, key string) error{
	"deleted": func(ctx context.Context, rdb redis.UniversalClient, key string) error { return rdb.Del(ctx, key).Err() },
	"replaced": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rdb.Set(ctx, key, "foreign", 0).Err()
	},
}

// watchers has a Locker of each strategy on one Redis deployment that detects losses, and what they hold.
type watchers struct {
	lockers map[string]locker.Locker
	rdb     redis.UniversalClient // nobody's of the Lockers
	log     lockedBuffer
}

func newWatchers(t *testing.T, open func(testing.TB) redis.UniversalClient) *watchers {
	t.Helper()
	w := &watchers{lockers: make(map[string]locker.Locker), rdb: open(t)}
	for name, newLocker := range onOneRedis {
		l, err := newLocker(open(t), locker.WithLossDetection(), locker.WithTTL(watchedTTL), locker.WithLogger(slog.New(slog.NewTextHandler(&w.log, nil))))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		w.lockers[name] = l
	}
	return w
}

// watched locks a key with each Locker, and returns when the keys are watched.
func (w *watchers) watched(t *testing.T, key func(strategy string) string) map[string]*locker.Lease {
	t.Helper()
	leases := make(map[string]*locker.Lease)
	for name, l := range w.lockers {
		lease, err := l.Lock(t.Context(), key(name))
		require.NoError(t, err)
		end := lease.Deadline()
		leases[name] = lease
		require.Eventually(t, func() bool { return lease.Deadline().After(end) }, changeTakes, time.Millisecond, "%s: it is renewed when it is watched", name)
	}
	return leases
}

// lost waits for the loss of leases.
func lost(t *testing.T, leases map[string]*locker.Lease, what string) {
	t.Helper()
	over := time.After(changeTakes)
	for name, lease := range leases {
		select {
		case <-lease.Lost():
			require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost, name)
		case <-over:
			require.Fail(t, "the loss did not arrive", "%s: %s", name, what)
		}
	}
}

// lostAfter changes the keys of leases, and waits for their loss.
func (w *watchers) lostAfter(t *testing.T, change string, leases map[string]*locker.Lease, when string) {
	t.Helper()
	for _, lease := range leases {
		require.NoError(t, lease.Err(), when)
		require.NoError(t, changes[change](t.Context(), w.rdb, lease.Key()))
	}
	lost(t, leases, change+" "+when)
}

// kept shows that the leases hold their keys, for their Lockers and in the store.
func (w *watchers) kept(t *testing.T, leases map[string]*locker.Lease, when string) {
	t.Helper()
	for name, lease := range leases {
		require.NoError(t, renewed(t, lease), "%s %s", name, when)
		require.EqualValues(t, 1, w.rdb.Exists(t.Context(), lease.Key()).Val(), "%s %s", name, when)
		require.NoError(t, lease.Unlock(t.Context()), "%s %s", name, when)
	}
}

// renewed renews lease as soon as the store can be used, and returns the store's answer.
func renewed(t *testing.T, lease *locker.Lease) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err = lease.Renew(t.Context())
		return !errors.Is(err, locker.ErrUnavailable)
	}, changeTakes, time.Millisecond)
	return err
}

// A slot moves while its keys are held. The holders go on. What happens to the keys at the new server is
// noticed: at once, or when the Locker has seen that they have moved.
func TestLossDetectionAfterASlotHasMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, notifying)
	w := newWatchers(t, func(tb testing.TB) redis.UniversalClient { return c.Client(tb) })
	leases := map[string]map[string]*locker.Lease{}
	for change := range changes {
		leases[change] = w.watched(t, func(name string) string { return fmt.Sprintf("{moves}%s %s", name, change) })
	}
	kept := w.watched(t, func(name string) string { return "{moves}kept " + name })
	stays := w.watched(t, func(name string) string { return "stays " + name })
	c.MoveSlot(t, c.Slot(t, "{moves}"), (c.ShardOf(t, "{moves}")+1)%c.Shards())
	for change := range changes {
		w.lostAfter(t, change, leases[change], "right after the move")
	}
	// They are watched at the new server by now.
	again := w.watched(t, func(name string) string { return "{moves}again " + name })
	w.lostAfter(t, "deleted", again, "at the new server")
	w.kept(t, kept, "after the move")
	w.kept(t, stays, "after the move of others")
}

// onShard returns a function that names keys of a shard.
func onShard(t *testing.T, c *redistest.Cluster, shard int, what string) func(strategy string) string {
	t.Helper()
	for i := range 1000 {
		if tag := fmt.Sprintf("{%d}", i); c.ShardOf(t, tag) == shard {
			return func(strategy string) string { return tag + what + " " + strategy }
		}
	}
	require.Fail(t, "no key of the shard")
	return nil
}

// A replica of a cluster becomes the master. What it does not know is lost at once, what it knows is held on, and
// changes of that are noticed at the new master.
func TestLossDetectionAfterAFailOverOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, notifying)
	w := newWatchers(t, func(tb testing.TB) redis.UniversalClient { return c.Client(tb) })
	replicated, kept := w.watched(t, onShard(t, c, 0, "replicated")), w.watched(t, onShard(t, c, 0, "kept"))
	orderly, stays := w.watched(t, onShard(t, c, 1, "orderly")), w.watched(t, onShard(t, c, 2, "stays"))
	c.Sync(t, 0)
	c.StopReplication(t, 0)
	unknown := w.watched(t, onShard(t, c, 0, "unknown"))
	c.KillMaster(t, 0)
	lost(t, unknown, "not known to the new master")
	w.lostAfter(t, "deleted", replicated, "at the new master")
	w.kept(t, kept, "at the new master")
	c.Failover(t, 1)
	w.lostAfter(t, "replaced", orderly, "after an orderly fail-over")
	w.kept(t, stays, "at a master that stays")
}

// notify has a server send keyspace notifications.
func notify(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		require.NoError(t, s.Client(t).ConfigSet(t.Context(), "notify-keyspace-events", "Kg$xeh").Err())
	}
}

// Sentinels promote a replica when the master has died.
func TestLossDetectionAfterAFailOver(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	notify(t, s.Nodes()...)
	w := newWatchers(t, func(tb testing.TB) redis.UniversalClient { return s.Client(tb) })
	replicated, kept := w.watched(t, func(name string) string { return "replicated " + name }), w.watched(t, func(name string) string { return "kept " + name })
	s.Sync(t)
	s.StopReplication(t)
	unknown := w.watched(t, func(name string) string { return "unknown " + name })
	s.KillMaster(t)
	w.rdb = s.Master(t).Client(t)
	lost(t, unknown, "not known to the new master")
	w.lostAfter(t, "deleted", replicated, "at the new master")
	w.kept(t, kept, "at the new master")
}

// Sentinels promote a replica while the master lives, which goes on as a master for some seconds.
func TestLossDetectionAfterAnOrderlyFailOver(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	notify(t, s.Nodes()...)
	w := newWatchers(t, func(tb testing.TB) redis.UniversalClient { return s.Client(tb) })
	leases := map[string]map[string]*locker.Lease{}
	for change := range changes {
		leases[change] = w.watched(t, func(name string) string { return change + " " + name })
	}
	kept := w.watched(t, func(name string) string { return "kept " + name })
	s.Sync(t)
	s.Failover(t)
	w.rdb = s.Master(t).Client(t)
	for change := range changes {
		w.lostAfter(t, change, leases[change], "after an orderly fail-over")
	}
	w.kept(t, kept, "after an orderly fail-over")
}

// After a fail-over to a server that sends no notifications the log says so, and renewals find losses.
func TestLossDetectionAfterAFailOverToASilentServer(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	notify(t, s.Master(t))
	w := newWatchers(t, func(tb testing.TB) redis.UniversalClient { return s.Client(tb) })
	leases, kept := w.watched(t, func(name string) string { return name }), w.watched(t, func(name string) string { return "kept " + name })
	require.NotContains(t, w.log.String(), "notify-keyspace-events")
	s.Sync(t)
	s.KillMaster(t)
	w.rdb = s.Master(t).Client(t)
	require.Eventually(t, func() bool {
		return strings.Count(w.log.String(), "notify-keyspace-events") == len(w.lockers)
	}, changeTakes, time.Millisecond, "each Locker says so")
	for name, lease := range leases {
		require.NoError(t, w.rdb.Del(t.Context(), lease.Key()).Err())
		require.ErrorIs(t, renewed(t, lease), locker.ErrLost, name)
	}
	w.kept(t, kept, "at a silent server")
}

// Without the permissions that detection needs, locks work as without detection. The log says so once, and a loss is
// reported by the next renewal.
func TestLossDetectionWithoutPermission(t *testing.T) {
	const forChannels = "for the channels of the keys"
	for what, rules := range map[string][]string{
		"to subscribe": {"~*", "&*", "+@all", "-subscribe"},
		forChannels:    {"~*", "resetchannels", "&redisson_lock__channel:*", "&locker:*", "+@all"},
	} {
		for name, newLocker := range onOneRedis {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				if what == forChannels {
					redistest.NeedsChannelRules(t)
				}
				srv := redistest.Start(t, notifying)
				srv.AddUser(t, "locks", "secret", rules...)
				o := srv.Options()
				o.Username, o.Password = "locks", "secret"
				rdb := redis.NewClient(o)
				defer rdb.Close()
				var log lockedBuffer
				l, err := newLocker(rdb, locker.WithLossDetection(), locker.WithRenewInterval(time.Second), locker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				defer func() { require.NoError(t, l.Close()) }()
				kept, err := l.Lock(t.Context(), "kept")
				require.NoError(t, err)
				said := func() int { return strings.Count(log.String(), "losses are not detected at once") }
				require.Eventually(t, func() bool { return said() == 1 }, changeTakes, time.Millisecond, "the log says so")
				for change, do := range changes {
					lease, err := l.Lock(t.Context(), change)
					require.NoError(t, err)
					require.NoError(t, do(t.Context(), srv.Client(t), change))
					lost(t, map[string]*locker.Lease{name: lease}, change)
				}
				require.NoError(t, kept.Err())
				require.NoError(t, kept.Unlock(t.Context()))
				require.Equal(t, 1, said(), "the log says so once")
			})
		}
	}
}

// With the permissions of the strategy, and those that docs/operating.md names for detection, a loss is reported at
// once, whether or not the user may look at the configuration.
func TestLossDetectionPermissions(t *testing.T) {
	for name, newLocker := range onOneRedis {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, notifying)
			srv.AddUser(t, "locks", "secret", append(documentedRules(t)[name], "&__keyspace@0__:app:*", "+subscribe", "+unsubscribe", "+ping")...)
			o := srv.Options()
			o.Username, o.Password = "locks", "secret"
			rdb := redis.NewClient(o)
			defer rdb.Close()
			l, err := newLocker(rdb, locker.WithLossDetection(), locker.WithTTL(watchedTTL), locker.WithPrefix("app:"))
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			for change, do := range changes {
				lease, err := l.Lock(t.Context(), change)
				require.NoError(t, err)
				require.NoError(t, do(t.Context(), srv.Client(t), "app:"+change))
				lost(t, map[string]*locker.Lease{name: lease}, change)
			}
		})
	}
}
