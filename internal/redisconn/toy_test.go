package redisconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// soon is how long what takes a round trip or two may take on a busy machine.
const soon = 10 * time.Second

const head = "local lock = unpack(KEYS)\nlocal claim, ttl = unpack(ARGV)\n"

var (
	anyScript = faultproxy.MatchCommand("EVALSHA", "EVAL")

	setHolds = NewScript("set holds", head+"redis.call('SET', lock .. ':holds', ARGV[3]) return 1")
	acquire  = NewScript("acquire", head+"redis.call('SET', lock, claim, 'PX', ttl) return 1")
	renew    = NewScript("renew", head+"return redis.call('PEXPIRE', lock, ttl)")
	release  = NewScript("release", head+"if redis.call('GET', lock) ~= claim then return 0 end return redis.call('DEL', lock)")
)

var errNotHeld = errors.New("the claim does not hold the key")

// claim is a key and who holds it.
type claim struct{ Key, ID string }

// toy is a toy of a lock on a Conn.
type toy struct{ *Conn }

func openToy(rdb redis.UniversalClient) toy { return toy{Open(rdb)} }

func (d toy) command(s *Script, c claim, args ...any) *Command {
	cmd := &Command{}
	cmd.Prepare(s, c.Key)
	cmd.Group, cmd.Words = c.ID, append(cmd.Words, &c.Key)
	cmd.SetKeys()
	cmd.Words = append(append(cmd.Words, &c.ID, time.Minute.Milliseconds()), args...)
	return cmd
}

// run runs a script behind abandoned commands of the claim that acquire it, or run it too.
func (d toy) run(ctx context.Context, s *Script, c claim, args ...any) error {
	err := d.AwaitAbandoned(ctx, func(earlier *Command) bool {
		return earlier.Group == c.ID && (earlier.Script == acquire || earlier.Script == s && s != release)
	})
	if err != nil {
		return notSent(err)
	}
	reply, err := d.Do(ctx, d.command(s, c, args...))
	return verdict(reply, err)
}

func verdict(reply any, err error) error {
	if err == nil && reply != int64(1) {
		return errNotHeld
	}
	return err
}

func (d toy) Acquire(ctx context.Context, c claim) error { return d.run(ctx, acquire, c) }
func (d toy) Release(ctx context.Context, c claim) error { return d.run(ctx, release, c) }

func (d toy) Renew(ctx context.Context, claims []claim, answer func(i int, err error)) {
	cmds := make([]*Command, len(claims))
	for i, c := range claims {
		cmds[i] = d.command(renew, c)
		cmds[i].Urgent = true
	}
	d.DoAll(ctx, cmds, func(i int, reply any, err error) { answer(i, verdict(reply, err)) })
}

// maybeApplied reports whether a command that failed with err may have been carried out.
func maybeApplied(err error) bool {
	var e *Error
	return err != nil && !(errors.As(err, &e) && e.NotApplied) && !errors.Is(err, errNotHeld)
}

func isPermanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Permanent
}

// wrapper is a client of a type of the user's, which ignores the context.
type wrapper struct{ redis.UniversalClient }

func (w wrapper) Process(_ context.Context, cmd redis.Cmder) error {
	return w.UniversalClient.Process(context.Background(), cmd)
}

// proxied is a toy through a proxy, and a client that goes round it.
type proxied struct {
	toy
	proxy  *faultproxy.Proxy
	direct *redis.Client
	claim  claim
}

func newProxied(t *testing.T, wrap bool) *proxied {
	t.Helper()
	server := redistest.Start(t)
	l := &proxied{proxy: faultproxy.Start(t, server.Addr()), direct: server.Client(t), claim: claim{"k", "id"}}
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: l.proxy.Addr(), MaxRetries: -1}))
	t.Cleanup(func() { _ = rdb.Close() })
	if wrap {
		rdb = wrapper{rdb}
	}
	l.toy = openToy(rdb)
	t.Cleanup(func() { _ = l.Close() })
	for _, f := range l.each() { // the scripts are known, connections are there
		_ = f(t.Context())
	}
	if !wrap {
		l.connected(t)
	}
	require.NoError(t, l.direct.Del(t.Context(), "k").Err())
	return l
}

// ways are those that a command can go.
var ways = map[string]func(*testing.T) *proxied{
	"alone": func(t *testing.T) *proxied { return newProxied(t, false) },
	"in a batch": func(t *testing.T) *proxied {
		l := newProxied(t, false)
		l.withoutFastPath()
		return l
	},
	"wrapped": func(t *testing.T) *proxied { return newProxied(t, true) },
}

// withoutFastPath sends lone commands by the pipeline.
func (l *proxied) withoutFastPath() { l.commands.single.fast = nil }

// each returns one command of each kind.
func (l *proxied) each() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire":  l.acquire,
		"SetHolds": func(ctx context.Context) error { return l.setHolds(ctx, 1) },
		"Release":  func(ctx context.Context) error { return l.Release(ctx, l.claim) },
		"Renew": func(ctx context.Context) (renewed error) {
			l.Renew(ctx, []claim{l.claim}, func(_ int, err error) { renewed = err })
			return renewed
		},
	}
}

func (l *proxied) acquire(ctx context.Context) error { return l.Acquire(ctx, l.claim) }

func (l *proxied) setHolds(ctx context.Context, n int) error {
	return l.run(ctx, setHolds, l.claim, n)
}

// leaves lets f send a command that is held back, and its caller return. The command goes on
// when the rule is stopped.
func (l *proxied) leaves(t *testing.T, f func(context.Context) error) *faultproxy.Rule {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rule := l.proxy.Delay(anyScript, 1, time.Hour)
	ended := l.begin(ctx, f)
	l.wait(t, rule.Done(), "the command is on its way")
	cancel()
	err := l.ends(t, ended)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, maybeApplied(err), "it is on its way")
	return rule
}

func (l *proxied) begin(ctx context.Context, f func(context.Context) error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return ended
}

func (l *proxied) wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatal(what)
	}
}

func (l *proxied) ends(t *testing.T, c <-chan error) error {
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
func (l *proxied) settled(t *testing.T) {
	t.Helper()
	require.NoError(t, l.AwaitAbandoned(t.Context(), func(*Command) bool { return true }))
}
