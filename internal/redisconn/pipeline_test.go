package redisconn

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A call ends with its ctx while its command is held up, whatever client it goes by.
func TestCallersLeaveAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			for name, f := range l.each() {
				l.leaves(t, f).Stop()
				l.settled(t)
				require.NoError(t, l.acquire(t.Context())) // there is a connection again

				rule := l.proxy.Delay(anyScript, 1, time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.ErrorIs(t, l.ends(t, l.begin(ctx, f)), context.DeadlineExceeded, name)
				cancel()
				rule.Stop()
				l.settled(t)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.False(t, maybeApplied(l.acquire(ctx)), "it was not sent")
		})
	}
}

// A command that was left behind is applied before the one that follows it.
func TestNothingOvertakesWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			late := l.leaves(t, l.acquire)
			other := claim{"another", "another"}
			require.ErrorIs(t, l.Release(t.Context(), other), errNotHeld, "another claim does not wait")

			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := l.ends(t, l.begin(short, func(ctx context.Context) error { return l.Release(ctx, l.claim) }))
			require.False(t, maybeApplied(err), "%v", err)

			ended := l.begin(t.Context(), func(ctx context.Context) error { return l.Release(ctx, l.claim) })
			late.Stop()
			require.NoError(t, l.ends(t, ended), "the attempt came first")
			require.Zero(t, l.direct.Exists(t.Context(), "k").Val())

			late = l.leaves(t, func(ctx context.Context) error { return l.setHolds(ctx, 1) })
			ended = l.begin(t.Context(), func(ctx context.Context) error { return l.setHolds(ctx, 2) })
			late.Stop()
			require.NoError(t, l.ends(t, ended))
			require.Equal(t, "2", l.direct.Get(t.Context(), "k:holds").Val())
		})
	}
}

// workers are the goroutines of the pipeline.
func (l *proxied) workers() int {
	pipeline := l.commands.single
	pipeline.mu.Lock()
	defer pipeline.mu.Unlock()
	return len(pipeline.idle) + len(pipeline.busy)
}

// connected sends commands until there is a connection for those that come alone.
func (l *proxied) connected(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		_ = l.acquire(t.Context())
		d := l.commands.single.fast
		n := d.take(time.Now())
		if n == nil {
			return false
		}
		defer d.give(n)
		return !n.netConn.unusable.Load()
	}, soon, time.Millisecond)
}

// A lone command goes by its own connection, and after a caller left that, or the server
// did, by another one.
func TestLoneCommands(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	alone := func() {
		t.Helper()
		l.connected(t)
		require.Eventually(t, func() bool { return l.acquire(t.Context()) == nil && l.workers() == 0 }, soon, time.Millisecond)
		require.NoError(t, l.acquire(t.Context()))
		require.Zero(t, l.workers(), "its caller has sent it")
	}
	alone()
	l.leaves(t, l.acquire).Stop()
	l.settled(t)
	require.NoError(t, l.acquire(t.Context()), "while there is no connection the pipeline sends it")
	alone()
	l.proxy.Cut()
	require.Eventually(t, func() bool { return l.acquire(t.Context()) == nil }, soon, time.Millisecond)
	alone()

	// The end of a context that comes with the answer harms nobody after it.
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := l.acquire(ctx); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, l.acquire(t.Context()))
	}
}

// A connection that was idle for a while is tried out before a command goes by it: no
// command is lost with one that the server, or the network, has dropped meanwhile.
func TestIdleLineIsTriedOut(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*proxied) func(){
		"cut":    func(l *proxied) func() { l.proxy.Cut(); return func() {} },
		"silent": func(l *proxied) func() { return l.proxy.Delay(faultproxy.MatchCommand("HELLO"), 1, time.Hour).Stop },
		"alive":  func(*proxied) func() { return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newProxied(t, false)
			d := l.commands.single.fast
			l.connected(t)
			n := d.take(time.Now())
			d.used = time.Now().Add(-2 * probeAfter)
			d.give(n)
			defer drop(l)()
			require.NoError(t, l.acquire(t.Context()), "it goes another way")
			l.connected(t)
			after := d.take(time.Now())
			defer d.give(after)
			if name == "alive" {
				require.Same(t, n, after)
			} else {
				require.NotSame(t, n, after)
			}
		})
	}
}

// A lone command ends at its deadline, which its connection keeps, or after two seconds.
func TestLoneCommandEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	for name, deadline := range map[string]time.Duration{"its own": 500 * time.Millisecond, "the connection's": time.Hour} {
		l.connected(t)
		rule := l.proxy.Delay(anyScript, 1, time.Hour)
		ctx := bound.New(context.Background(), deadline, nil)
		require.ErrorIs(t, l.ends(t, l.begin(ctx, l.acquire)), context.DeadlineExceeded, name)
		ctx.Stop()
		rule.Stop()
		l.settled(t)
	}
}

// A renewal of many claims that is left behind is answered for each, once.
func TestRenewalIsLeftBehind(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	answers := make(map[int]int)
	l.leaves(t, func(ctx context.Context) (last error) {
		l.Renew(ctx, []claim{l.claim, l.claim, l.claim}, func(i int, err error) { answers[i], last = answers[i]+1, err })
		return last
	}).Stop()
	require.Equal(t, map[int]int{0: 1, 1: 1, 2: 1}, answers)
}

// held has the pipeline's batches be held back, as many as there may be.
func (l *proxied) held(t *testing.T) (rule *faultproxy.Rule, answers []<-chan error) {
	t.Helper()
	l.withoutFastPath()
	rule = l.proxy.Delay(anyScript, mostBatches, time.Hour)
	for n := range mostBatches {
		answers = append(answers, l.begin(t.Context(), func(ctx context.Context) error { return l.setHolds(ctx, n) }))
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		require.NoError(t, rule.Wait(ctx, n+1), "a batch that is slow does not hold up the next one")
		cancel()
	}
	return rule, answers
}

// A command that waits for its batch is not sent if its caller leaves.
func TestQueuedCommandIsNotSent(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	rule, answers := l.held(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := l.Release(ctx, claim{"left out", "1"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, maybeApplied(err))
	rule.Stop()
	for _, a := range answers {
		require.NoError(t, l.ends(t, a))
	}
	require.Zero(t, l.proxy.Count(faultproxy.MatchContains("left out")))
}

// Commands that come while batches are on their way share the next ones, and a renewal
// does not wait behind them.
func TestCommandsShareRoundTrips(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	rule, answers := l.held(t)
	for n := range 300 {
		answers = append(answers, l.begin(t.Context(), func(ctx context.Context) error { return l.setHolds(ctx, n) }))
	}
	require.Eventually(t, func() bool {
		pipeline := l.commands.single
		pipeline.mu.Lock()
		defer pipeline.mu.Unlock()
		return len(pipeline.queue) == 300
	}, soon, time.Millisecond)
	l.claim.Key = "none"
	renewed := l.begin(t.Context(), l.each()["Renew"])
	require.ErrorIs(t, l.ends(t, renewed), errNotHeld, "it is answered while all others wait")
	before := l.proxy.RoundTrips()
	rule.Stop()
	for _, a := range answers {
		require.NoError(t, l.ends(t, a))
	}
	require.LessOrEqual(t, l.proxy.RoundTrips()-before, mostBatches)
}

// The first command that the server does not know the script of teaches it, and the
// others of the batch follow.
func TestOneCommandTeaches(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	rule, answers := l.held(t)
	for n := range 100 {
		answers = append(answers, l.begin(t.Context(), func(ctx context.Context) error { return l.setHolds(ctx, n) }))
	}
	require.NoError(t, l.direct.ScriptFlush(t.Context()).Err())
	before := l.proxy.Count(faultproxy.MatchCommand("EVAL"))
	rule.Stop()
	for _, a := range answers {
		require.NoError(t, l.ends(t, a))
	}
	require.LessOrEqual(t, l.proxy.Count(faultproxy.MatchCommand("EVAL"))-before, 2*mostBatches)
}

// Close gives what was left behind a moment, and no more.
func TestCloseWaitsForWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	l := newProxied(t, true)
	late := l.leaves(t, l.acquire)
	closed := l.begin(t.Context(), func(context.Context) error { return l.Close() })
	late.Stop()
	require.NoError(t, l.ends(t, closed))
	require.Equal(t, "id", l.direct.Get(t.Context(), "k").Val())

	l = newProxied(t, true)
	late = l.leaves(t, l.acquire)
	require.NoError(t, l.ends(t, l.begin(t.Context(), func(context.Context) error { return l.Close() })))
	require.Zero(t, l.direct.Exists(t.Context(), "k").Val(), "it is still held back")
	late.Stop()
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
	d := openToy(s)
	s.next <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	held := claim{"k", "id"}
	err := d.Acquire(ctx, held)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(s.next)
	began := time.Now()
	require.ErrorIs(t, d.Release(t.Context(), held), errNotHeld)
	require.GreaterOrEqual(t, time.Since(began), controlTimeout+time.Second)
}

// A server that has become a replica says so, and lone commands go on when it is a master
// again: go-redis uses no connection any more that was told so.
func TestLoneCommandsOfAReplica(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	l.connected(t)
	require.NoError(t, l.direct.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	require.ErrorContains(t, l.acquire(t.Context()), "READONLY")
	require.NoError(t, l.direct.Do(t.Context(), "replicaof", "no", "one").Err())
	require.NoError(t, l.acquire(t.Context()))
	l.connected(t)
}

// The connection of lone commands has the lifetime that the client's have.
func TestLineHasALifetime(t *testing.T) {
	t.Parallel()
	l := newProxied(t, false)
	d := l.commands.single.fast
	l.connected(t)
	n := d.take(time.Now())
	require.True(t, n.expires.IsZero(), "go-redis's default is none")
	n.expires = time.Now().Add(-time.Second)
	d.give(n)
	require.NoError(t, l.acquire(t.Context()), "it goes another way")
	l.connected(t)
	after := d.take(time.Now())
	require.NotSame(t, n, after)
	d.give(after)
	d.like.ConnMaxLifetime = time.Hour
	n = d.connect()
	defer n.close()
	require.WithinDuration(t, time.Now().Add(time.Hour), n.expires, time.Minute)
}
