package redisdriver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	hangs   = 400 * time.Millisecond // how long a command is held back
	atOnce  = 100 * time.Millisecond // how soon a caller leaves
	lasting = 4 * time.Second
)

const head = "local lock = unpack(KEYS)\nlocal claim, ttl = unpack(ARGV)\n"

var (
	anyScript = faultproxy.MatchCommand("EVALSHA", "EVAL")

	setScript = ScriptOf("set holds", head+"redis.call('SET', lock .. ':holds', ARGV[3]) return 1")
	toy       = Protocol{
		Name:    "toy",
		Acquire: ScriptOf("acquire", head+"redis.call('SET', lock, claim, 'PX', ttl) return {1, 0}"),
		Renew:   ScriptOf("renew", head+"return redis.call('PEXPIRE', lock, ttl)"),
		Release: ScriptOf("release", head+"if redis.call('GET', lock) ~= claim then return 0 end return redis.call('DEL', lock)"),
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
	return l
}

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

// leaves has f send a command that is held back for hangs, and cancels it on its way.
func (l *leaver) leaves(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	rule := l.proxy.Delay(anyScript, 1, hangs)
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	<-rule.Done()
	began := time.Now()
	cancel()
	err := <-ended
	require.Less(t, time.Since(began), atOnce)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, driver.MaybeApplied(err), "it is on its way")
}

// A call ends with its ctx, whatever the store does, and whatever client it goes by.
func TestCallersLeaveAtOnce(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]bool{"client": false, "wrapped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeaver(t, wrap)
			for name, f := range l.commands() {
				l.leaves(t, f)
				l.runner.close(soon)
				require.Zero(t, l.runner.count.Load(), name)

				rule := l.proxy.Delay(anyScript, 1, hangs)
				ctx, cancel := context.WithTimeout(t.Context(), atOnce/2)
				began := time.Now()
				require.Error(t, f(ctx), name)
				require.Less(t, time.Since(began), 2*atOnce, "%s: its time is over", name)
				cancel()
				<-rule.Done()
				l.runner.close(soon)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.False(t, driver.MaybeApplied(l.acquire(ctx)), "it was not sent")
		})
	}
}

// A command that was left behind is applied before the one that follows it.
func TestNothingOvertakesWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]bool{"client": false, "wrapped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLeaver(t, wrap)
			l.leaves(t, l.acquire)
			other := driver.Claim{Key: "another", ID: "another", Owner: "another", TTL: time.Minute}
			began := time.Now()
			require.ErrorIs(t, l.Release(t.Context(), other), locker.ErrLost)
			require.Less(t, time.Since(began), atOnce, "another claim does not wait")

			short, cancel := context.WithTimeout(t.Context(), atOnce/2)
			defer cancel()
			began = time.Now()
			err := l.Release(short, l.claim)
			require.Less(t, time.Since(began), 2*atOnce)
			require.False(t, driver.MaybeApplied(err), "%v", err)

			require.NoError(t, l.Release(t.Context(), l.claim), "the attempt came first")
			require.Zero(t, l.direct.Exists(t.Context(), "k").Val())

			l.leaves(t, func(ctx context.Context) error { return l.setHolds(ctx, 1) })
			require.NoError(t, l.setHolds(t.Context(), 2))
			require.Equal(t, "2", l.direct.Get(t.Context(), "k:holds").Val())
		})
	}
}

// A renewal of many claims that is left behind is answered for each, once.
func TestRenewalIsLeftBehind(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, false)
	answers := make(map[int]int)
	l.leaves(t, func(ctx context.Context) (last error) {
		l.Renew(ctx, []driver.Claim{l.claim, l.claim, l.claim}, func(i int, err error) { answers[i], last = answers[i]+1, err })
		return last
	})
	require.Equal(t, map[int]int{0: 1, 1: 1, 2: 1}, answers)
}

// The wait for a connection ends with ctx, and nothing was sent then.
func TestWaitForAConnection(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, false)
	rule := l.proxy.Delay(anyScript, controlPool, hangs)
	var busy sync.WaitGroup
	for range controlPool {
		busy.Go(func() { _ = l.setHolds(t.Context(), 1) })
	}
	<-rule.Done()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	time.AfterFunc(atOnce/4, cancel)
	began := time.Now()
	err := l.Release(ctx, l.claim)
	require.Less(t, time.Since(began), atOnce)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, driver.MaybeApplied(err))
	busy.Wait()
}

// Close gives what was left behind a moment, and no more.
func TestCloseWaitsForWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, true)
	l.leaves(t, l.acquire)
	require.NoError(t, l.Close())
	require.Zero(t, l.runner.count.Load())

	l = newLeaver(t, true)
	l.leaves(t, func(ctx context.Context) error {
		l.proxy.HangReply(anyScript, 2)
		return l.acquire(ctx)
	})
	began := time.Now()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(began), time.Second)
}

// stuck is a client that never comes back from some commands.
type stuck struct {
	redis.UniversalClient
	next chan struct{}
}

func (s stuck) Process(ctx context.Context, cmd redis.Cmder) error {
	if _, open := <-s.next; open {
		select {}
	}
	return s.UniversalClient.Process(ctx, cmd)
}

// A command that never returns does not keep its claim from being released for ever.
func TestCommandThatNeverReturns(t *testing.T) {
	t.Parallel()
	s := stuck{redistest.Start(t).Client(t), make(chan struct{}, 1)}
	d, err := NewDriver(s, toy)
	require.NoError(t, err)
	s.next <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	claim := driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: time.Minute}
	_, err = d.Acquire(ctx, driver.Request{Claim: claim})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(s.next)
	began := time.Now()
	require.ErrorIs(t, d.Release(t.Context(), claim), locker.ErrLost)
	require.InDelta(t, hungAfter, time.Since(began), float64(hungAfter/4))
}
