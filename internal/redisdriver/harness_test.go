package redisdriver

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	soon           = 10 * time.Second // for what takes a round trip or two, on a busy machine
	commandTimeout = 2 * time.Second  // how long redisconn waits for an answer
)

const head = "local lock = unpack(KEYS)\nlocal claim, ttl = unpack(ARGV)\n"

var (
	setScript = redisconn.NewScript("set holds", head+"redis.call('SET', lock .. ':holds', ARGV[3]) return 1")
	toy       = Protocol{
		Name:    "toy",
		Acquire: redisconn.NewScript("acquire", head+"redis.call('SET', lock, claim, 'PX', ttl) return {1, 0}"),
		Renew:   redisconn.NewScript("renew", head+"return redis.call('PEXPIRE', lock, ttl)"),
		Release: redisconn.NewScript("release", head+"if redis.call('GET', lock) ~= claim then return 0 end return redis.call('DEL', lock)"),
	}
)

// wrapper is a client of a type of the user's.
type wrapper struct{ redis.UniversalClient }

func claimOf(key string) driver.Claim {
	return driver.Claim{Key: key, ID: "id", Owner: "id", TTL: time.Minute}
}

// proxied is a driver through a proxy, and a client that goes round it.
type proxied struct {
	*Driver
	proxy  *faultproxy.Proxy
	direct *redis.Client
	claim  driver.Claim
}

func newProxied(t *testing.T, wrap bool) *proxied {
	t.Helper()
	server := redistest.Start(t)
	p := &proxied{proxy: faultproxy.Start(t, server.Addr()), direct: server.Client(t), claim: claimOf("k")}
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: p.proxy.Addr(), MaxRetries: -1}))
	t.Cleanup(func() { _ = rdb.Close() })
	if wrap {
		rdb = wrapper{rdb}
	}
	var err error
	p.Driver, err = NewDriver(rdb, toy)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	for _, f := range []func(context.Context) error{p.acquire, p.setHolds(1), p.release} { // the scripts are known
		require.NoError(t, f(t.Context()))
	}
	return p
}

func (p *proxied) acquire(ctx context.Context) error {
	_, err := p.Acquire(ctx, driver.Request{Claim: p.claim})
	return err
}

func (p *proxied) release(ctx context.Context) error { return p.Release(ctx, p.claim) }

func (p *proxied) setHolds(n int) func(context.Context) error {
	return func(ctx context.Context) error { return p.Run(ctx, setScript, p.claim, n) }
}

// abandons lets f send a command that is held back, and its caller return. The command goes
// on when the rule is stopped.
func (p *proxied) abandons(t *testing.T, f func(context.Context) error) *faultproxy.Rule {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rule := p.proxy.Delay(faultproxy.MatchCommand("EVALSHA", "EVAL"), 1, time.Hour)
	ended := p.begin(ctx, f)
	select {
	case <-rule.Done():
	case <-time.After(soon):
		t.Fatal("the command is not sent")
	}
	cancel()
	err := p.ends(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, driver.MaybeApplied(err), "it is on its way")
	return rule
}

func (p *proxied) begin(ctx context.Context, f func(context.Context) error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return ended
}

func (p *proxied) ends(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(soon):
		t.Fatal("the call does not return")
		return nil
	}
}

// settled waits until each abandoned command is resolved.
func (p *proxied) settled(t *testing.T) {
	t.Helper()
	require.NoError(t, p.conn.AwaitAbandoned(t.Context(), func(*redisconn.Command) bool { return true }))
}
