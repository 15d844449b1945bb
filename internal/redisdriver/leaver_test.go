package redisdriver

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const head = "local lock = unpack(KEYS)\nlocal claim, ttl = unpack(ARGV)\n"

var (
	anyScript = faultproxy.MatchCommand("EVALSHA", "EVAL")

	setScript = newScript("set holds", head+"redis.call('SET', lock .. ':holds', ARGV[3]) return 1")
	toy       = Protocol{
		Name:    "toy",
		Acquire: newScript("acquire", head+"redis.call('SET', lock, claim, 'PX', ttl) return {1, 0}"),
		Renew:   newScript("renew", head+"return redis.call('PEXPIRE', lock, ttl)"),
		Release: newScript("release", head+"if redis.call('GET', lock) ~= claim then return 0 end return redis.call('DEL', lock)"),
	}
)

// wrapper is a client of a type of the user's, which minds no context.
type wrapper struct{ redis.UniversalClient }

func (w wrapper) Process(_ context.Context, cmd redis.Cmder) error {
	return w.UniversalClient.Process(context.Background(), cmd)
}

// leaver is a driver through a proxy, and a way round it.
type leaver struct {
	*Driver
	proxy  *faultproxy.Proxy
	direct *redis.Client
	claim  driver.Claim
}

func newLeaver(t *testing.T, wrap bool) *leaver {
	t.Helper()
	server := redistest.Start(t)
	l := &leaver{proxy: faultproxy.Start(t, server.Addr()), direct: server.Client(t)}
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: l.proxy.Addr(), MaxRetries: -1}))
	t.Cleanup(func() { _ = rdb.Close() })
	if wrap {
		rdb = wrapper{rdb}
	}
	var err error
	l.Driver, err = NewDriver(rdb, toy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	l.claim = driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: time.Minute}
	for _, f := range l.commands() { // the scripts are known, connections are there
		_ = f(t.Context())
	}
	if !wrap {
		l.connected(t)
	}
	require.NoError(t, l.direct.Del(t.Context(), "k").Err())
	return l
}

// ways are those that a command can go.
var ways = map[string]func(*testing.T) *leaver{
	"alone": func(t *testing.T) *leaver { return newLeaver(t, false) },
	"in a batch": func(t *testing.T) *leaver {
		l := newLeaver(t, false)
		l.withoutDirect()
		return l
	},
	"wrapped": func(t *testing.T) *leaver { return newLeaver(t, true) },
}

// withoutDirect has lone commands go by the lane.
func (l *leaver) withoutDirect() { l.c.commands.one.direct = nil }

// commands are one of each kind.
func (l *leaver) commands() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire":  l.acquire,
		"SetHolds": func(ctx context.Context) error { return l.setHolds(ctx, 1) },
		"Release":  func(ctx context.Context) error { return l.Release(ctx, l.claim) },
		"Renew": func(ctx context.Context) (renewed error) {
			l.Renew(ctx, []driver.Claim{l.claim}, func(_ int, err error) { renewed = err })
			return renewed
		},
	}
}

func (l *leaver) acquire(ctx context.Context) error {
	_, err := l.Acquire(ctx, driver.Request{Claim: l.claim})
	return err
}

func (l *leaver) setHolds(ctx context.Context, n int) error {
	return l.Run(ctx, setScript, l.claim, n)
}

// leaves has f send a command that is held back, and its caller leave. The command goes
// on when the rule is stopped.
func (l *leaver) leaves(t *testing.T, f func(context.Context) error) *faultproxy.Rule {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rule := l.proxy.Delay(anyScript, 1, time.Hour)
	ended := l.begin(ctx, f)
	l.wait(t, rule.Done(), "the command is on its way")
	cancel()
	err := l.ends(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, driver.MaybeApplied(err), "it is on its way")
	return rule
}

func (l *leaver) begin(ctx context.Context, f func(context.Context) error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return ended
}

func (l *leaver) wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatal(what)
	}
}

func (l *leaver) ends(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(soon):
		t.Fatal("the call does not return")
		return nil
	}
}

// settled waits until nothing that was left behind is on its way.
func (l *leaver) settled(t *testing.T) {
	t.Helper()
	require.NoError(t, l.left.wait(t.Context(), func(*flight) bool { return true }))
}

// A Break whose answer does not come holds up none of another key.
func TestBreakOfAnotherKeyDoesNotWait(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, false)
	rule := l.leaves(t, func(ctx context.Context) error { return l.Break(ctx, driver.Holder{Key: "hung", ID: "a"}) })
	defer l.settled(t)
	defer rule.Stop()
	start := time.Now()
	require.ErrorIs(t, l.Break(t.Context(), driver.Holder{Key: "k", ID: "b"}), driver.ErrLost)
	require.Less(t, time.Since(start), controlTimeout, "the other is waited for until then")
}
