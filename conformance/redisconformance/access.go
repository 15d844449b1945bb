package redisconformance

import (
	"context"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	user, password = "locker", "correct horse"
	ownKeys        = "app:" // the prefix of their locks
)

// RunAccess checks what the strategy's doc.go, in the working directory, says about
// the permissions it needs: that a user who has these and no others can do
// everything, that the strategy goes on without publishing and subscribing, and
// that a user who may not lock gets an error with the server's words. And that it works
// over TLS.
func RunAccess(t *testing.T, s Strategy) {
	t.Helper()
	if !redistest.AtLeast(7, 0) {
		t.Skip("the permissions in doc.go are written as Redis 7 understands them")
	}
	doc := documented(t, "doc.go")
	t.Run("exact", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		grant(t, srv, doc, nil)
		connect := func() redis.UniversalClient { return asUser(t, srv) }
		exercise(t, s, connect)
		require.Empty(t, srv.Denied(t), "doc.go lacks permissions")
		unused(t, srv, doc)
	})
	t.Run("exact on a cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 0)
		for _, srv := range c.Nodes() {
			grant(t, srv, doc, nil)
		}
		connect := func() redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: user, Password: password})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		}
		exercise(t, s, connect)
		renewInMove(t, s, c, connect())
		for _, srv := range c.Nodes() {
			require.Empty(t, srv.Denied(t), "doc.go lacks permissions")
		}
	})
	t.Run("without pub/sub", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		grant(t, srv, doc, []string{"-publish", "-spublish", "-subscribe", "-ssubscribe", "-unsubscribe", "-sunsubscribe", "resetchannels"})
		exercise(t, s, func() redis.UniversalClient { return asUser(t, srv) })
	})
	for _, cmd := range []string{"evalsha", "time"} { // sent, and called by a script
		t.Run("without "+cmd, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			grant(t, srv, doc, []string{"-" + cmd})
			refusedAtOnce(t, s, asUser(t, srv))
		})
	}
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t, redistest.WithTLS())
		grant(t, srv, doc, nil)
		exercise(t, s, func() redis.UniversalClient {
			rdb := redis.NewClient(&redis.Options{
				Addr: srv.TLSAddr(t), TLSConfig: srv.TLSConfig(t), Username: user, Password: password,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		})
	})
}

// RunAs checks that a user with these rules and no others, as in ACL SETUSER, can do
// everything with locks whose prefix is "app:".
func RunAs(t *testing.T, s Strategy, rules ...string) {
	t.Helper()
	srv := redistest.Start(t)
	srv.AddUser(t, user, password, rules...)
	exercise(t, s, func() redis.UniversalClient { return asUser(t, srv) })
	require.Empty(t, srv.Denied(t), "permissions are missing")
}

// renewInMove renews a lock whose slot is between two nodes, to which the servers send
// the client with ASKING.
func renewInMove(t *testing.T, s Strategy, c *redistest.Cluster, rdb redis.UniversalClient) {
	t.Helper()
	l, err := s.New(rdb, locker.WithPrefix(ownKeys))
	require.NoError(t, err)
	defer l.Close()
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	m := c.StartMove(t, c.Slot(t, ownKeys+"k"), (c.ShardOf(t, ownKeys+"k")+1)%c.Shards())
	m.MoveKeys(t)
	require.NoError(t, lease.Renew(t.Context()))
	m.Finish(t)
	require.NoError(t, lease.Unlock(t.Context()))
}

func asUser(t *testing.T, srv *redistest.Server) redis.UniversalClient {
	t.Helper()
	o := srv.Options()
	o.Username, o.Password = user, password
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// permissions holds the permissions that a doc.go names, as rules of ACL SETUSER.
type permissions struct {
	commands []string // "get", "pubsub|shardnumsub"
	keys     []string // prefixes
	channels []string // prefixes
}

var (
	commandList = regexp.MustCompile(`Commands: (.*?)\. `)
	commandName = regexp.MustCompile(`[A-Z]{3,}(?: [A-Z]{3,})?`)
	keyName     = regexp.MustCompile(`locker:[a-z]+:`)
	channelName = regexp.MustCompile(`redisson_lock__channel:|locker:channel:|locker:claims:`)
)

func documented(t *testing.T, file string) permissions {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
	require.NoError(t, err)
	_, text, ok := strings.Cut(strings.Join(strings.Fields(f.Doc.Text()), " ")+" ", " # Keys ")
	require.True(t, ok, "%s has no section Keys", file)
	list := commandList.FindStringSubmatch(text)
	require.NotNil(t, list, "%s names no commands", file)
	var p permissions
	for _, name := range commandName.FindAllString(list[1], -1) {
		p.commands = append(p.commands, strings.ToLower(strings.Replace(name, " ", "|", 1)))
	}
	slices.Sort(p.commands)
	p.commands = slices.Compact(p.commands)
	p.channels = channelName.FindAllString(text, -1)
	for _, name := range keyName.FindAllString(text, -1) {
		if !slices.Contains(p.channels, name) {
			p.keys = append(p.keys, name)
		}
	}
	return p
}

// grant makes the user, with what is documented and then further rules.
func grant(t *testing.T, srv *redistest.Server, p permissions, further []string) {
	t.Helper()
	ctx, admin := t.Context(), srv.Client(t)
	var rules []string
	for _, cmd := range p.commands {
		// Older servers do not know all of them.
		name, _, _ := strings.Cut(cmd, "|")
		info, err := admin.Do(ctx, "command", "info", name).Slice()
		require.NoError(t, err)
		if info[0] != nil {
			rules = append(rules, "+"+cmd)
		}
	}
	for _, prefix := range append([]string{ownKeys}, p.keys...) {
		rules = append(rules, "~"+prefix+"*")
	}
	for _, prefix := range p.channels {
		rules = append(rules, "&"+prefix+"*")
	}
	srv.AddUser(t, user, password, slices.Concat(rules, further)...)
}

// elsewhere are commands used on clusters only, or after a long silence or contention.
var elsewhere = []string{
	"ping", "spublish", "ssubscribe", "sunsubscribe", "pubsub|numsub", "pubsub|shardnumsub", "cluster|slots", "asking",
	"hkeys", "hscan", // of permits whose ends were lost, and for those who look at them
}

// unused fails for documented commands that nobody has used.
func unused(t *testing.T, srv *redistest.Server, p permissions) {
	t.Helper()
	stats, err := srv.Client(t).Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for _, cmd := range p.commands {
		if !slices.Contains(elsewhere, cmd) && !strings.Contains(stats, "cmdstat_"+cmd+":") {
			t.Errorf("doc.go names %s, which is not used", strings.ToUpper(cmd))
		}
	}
}

// refusedAtOnce checks that a user without a permission that matters gets an error at once.
func refusedAtOnce(t *testing.T, s Strategy, rdb redis.UniversalClient) {
	t.Helper()
	l, err := s.New(rdb, locker.WithPrefix(ownKeys))
	require.NoError(t, err)
	defer l.Close()
	start := time.Now()
	for name, lock := range map[string]func(context.Context, string, ...locker.LockOption) (*locker.Lease, error){
		"Lock": l.Lock, "TryLock": l.TryLock,
	} {
		_, err := lock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrUnavailable, name)
		require.NotErrorIs(t, err, locker.ErrNotAcquired, name)
		require.Regexp(t, "NOPERM|can't run this command|has no permissions", err, name)
	}
	require.Less(t, time.Since(start), 2*time.Second)
}

// users are Lockers for exercise.
type users struct {
	Strategy
	connect func() redis.UniversalClient
}

func (u users) NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker {
	tb.Helper()
	l, err := u.New(u.connect(), append(opts, locker.WithPrefix(ownKeys))...)
	require.NoError(tb, err)
	return l
}

func (u users) Capabilities() conformance.Capabilities {
	return conformance.Capabilities{Name: u.Name, Fencing: true, StoredHolds: u.StoredHolds, Permits: u.Permits, Notified: u.Notified, Fair: u.Fair}
}

func (u users) Timing() conformance.Timing { return u.Strategy.Timing }

// exercise uses a strategy in all the ways that send something to the server.
func exercise(t *testing.T, s Strategy, connect func() redis.UniversalClient) {
	t.Helper()
	conformance.Case{
		Name: "Exercise", Group: "access", Rules: []string{"R17"}, Test: exercises,
		Contract: "everything works with the permissions documented, and over TLS",
	}.Run(t, users{s, connect})
}

func exercises(t *conformance.T) {
	a, b := t.Locker(), t.Locker()
	// In several slots, one of them with a name that is no hash tag.
	for _, key := range []string{"k", "}x", "{a}b", "l", "m", "n"} {
		lease := t.Lock(a, key)
		inner := t.LockUnder(lease.Context(t.Context()), a, key)
		t.NoError(lease.Renew(t.Context()), "Renew")
		t.Unlock(inner)
		w := t.Wait(b, key)
		w.Cancel()
		t.Is(t.Refused(w, t.Timing().Slack), context.Canceled)
		w = t.Wait(b, key)
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
	lease := t.Lock(a, "k")
	lease.ReleaseRequested()
	t.Unlock(lease)
	// Two waits at once.
	k, l := t.Lock(a, "k"), t.Lock(a, "l")
	wk, wl := t.Wait(b, "k"), t.Wait(b, "l")
	t.Unlock(k)
	t.Unlock(l)
	t.Unlock(t.Granted(wk, t.Timing().PollWithin))
	t.Unlock(t.Granted(wl, t.Timing().PollWithin))
	// To and fro for long enough that pollers get a chance, too.
	for start := time.Now(); time.Since(start) < time.Second/2; {
		lease := t.Lock(a, "k")
		w := t.Wait(b, "k")
		t.Unlock(lease)
		lease = t.Granted(w, t.Timing().PollWithin)
		w = t.Wait(a, "k")
		t.Unlock(lease)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
	}
	if t.Harness().Capabilities().StoredHolds {
		ctx := locker.ContextWithOwner(t.Context(), "somebody")
		one, two := t.LockUnder(ctx, a, "k"), t.LockUnder(ctx, b, "k")
		t.NoError(two.Renew(t.Context()), "Renew")
		t.Unlock(one)
		t.Unlock(two)
		// To join a hold whose owner was not named.
		one = t.Lock(a, "k")
		two = t.LockUnder(locker.ContextWithOwner(t.Context(), one.Owner()), b, "k")
		t.NoError(one.Renew(t.Context()), "Renew")
		t.Unlock(one)
		t.Unlock(two)
	}
	t.Free(b, "k")
	if t.Harness().Capabilities().Permits {
		exercisesPermits(t, a, b)
	}
}

func exercisesPermits(t *conformance.T, a, b locker.Locker) {
	for _, key := range []string{"k", "}x", "{a}b"} {
		one, err := locker.NewSemaphore(a, key, 2)
		t.NoError(err, "NewSemaphore")
		two, err := locker.NewSemaphore(b, key, 2)
		t.NoError(err, "NewSemaphore")
		acquire := func(s *locker.Semaphore, n int, opts ...locker.LockOption) *locker.Lease {
			lease, err := s.AcquireN(t.Context(), n, opts...)
			return t.Got("AcquireN", lease, err)
		}
		first, second := acquire(one, 1), acquire(two, 1, locker.WithoutRenewal(), locker.WithTTL(t.Timing().ShortTTL))
		t.NoError(first.Renew(t.Context()), "Renew")
		w := t.UntilWaits(t.StartCall(t.Context(), key, func(ctx context.Context) (*locker.Lease, error) { return two.AcquireN(ctx, 2) }))
		t.Waits(w)
		<-second.Lost()
		t.Unlock(first)
		t.Unlock(t.Granted(w, t.Timing().PollWithin))
		n, err := one.Available(t.Context())
		t.NoError(err, "Available")
		if n != 2 {
			t.Errorf("%d permits are free, want 2", n)
		}
		first = acquire(one, 1)
		lock := t.Wait(b, key)
		t.Unlock(first)
		t.Unlock(t.Granted(lock, t.Timing().PollWithin))
	}
}
