package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// gate is a dialer that can refuse at once or hang.
type gate struct {
	refuse, hang atomic.Bool
	dials        atomic.Int32
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.dials.Add(1)
	if g.hang.Load() {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	if g.refuse.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// newGated is a leaver through a gate, where nothing was sent yet.
func newGated(t *testing.T) (*proxied, *gate) {
	t.Helper()
	l, g := newProxied(t, false), &gate{}
	rdb := redis.NewClient(&redis.Options{Addr: l.proxy.Addr(), MaxRetries: -1, Dialer: g.dial})
	t.Cleanup(func() { _ = rdb.Close() })
	l.toy = openToy(rdb)
	t.Cleanup(func() { _ = l.Close() })
	return l, g
}

// One connection that is refused costs the attempt that was refused, not those after it.
func TestOneRefusedConnection(t *testing.T) {
	t.Parallel()
	l, g := newGated(t)
	l.connected(t)
	g.refuse.Store(true)
	l.proxy.Cut()
	require.Eventually(t, func() bool {
		err := l.acquire(t.Context())
		fast := l.commands.single.fast
		cut := <-fast.free // costs an attempt of its own, which need not be the first
		fast.free <- cut
		return cut == nil && err != nil && !maybeApplied(err)
	}, soon, time.Millisecond, "a refused connection")
	g.refuse.Store(false)
	for range 10 {
		require.NoError(t, l.acquire(t.Context()))
	}
	l.connected(t)
}

// A command that could not be sent says so, though the one before it was left behind.
func TestRefusedConnectionAfterACallerLeft(t *testing.T) {
	t.Parallel()
	l, g := newGated(t)
	l.connected(t)
	g.refuse.Store(true)
	l.leaves(t, l.acquire).Stop()
	l.settled(t)
	l.proxy.Cut() // those of the pipeline
	require.Eventually(t, func() bool {
		err := l.acquire(t.Context())
		require.Error(t, err)
		return !maybeApplied(err)
	}, soon, time.Millisecond)
}

// A caller leaves by its deadline, with the Locker, and by itself while its connection is
// being made.
func TestCallersLeaveAConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() (context.Context, func()){
		"deadline": func() (context.Context, func()) {
			ctx := bound.New(context.Background(), 50*time.Millisecond, nil)
			return ctx, ctx.Stop
		},
		"Locker": func() (context.Context, func()) {
			locker, end := context.WithTimeout(context.Background(), 50*time.Millisecond)
			return bound.New(context.Background(), time.Minute, locker), end
		},
		"caller": func() (context.Context, func()) {
			ctx, end := context.WithTimeout(context.Background(), 50*time.Millisecond)
			return bound.New(ctx, time.Minute, nil), end
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, g := newGated(t)
			l.connected(t)
			g.hang.Store(true)
			l.proxy.Cut()
			ctx, stop := end()
			defer stop()
			began := time.Now()
			for ctx.Err() == nil { // it may meet a connection that was cut
				require.Error(t, l.acquire(ctx))
			}
			require.Less(t, time.Since(began), controlTimeout/2)
		})
	}
}

// A Locker whose server was away at first goes on when that is back.
func TestServerThatWasAwayAtFirst(t *testing.T) {
	t.Parallel()
	l, g := newGated(t)
	g.refuse.Store(true)
	time.AfterFunc(200*time.Millisecond, func() { g.refuse.Store(false) })
	require.Eventually(t, func() bool { return l.acquire(t.Context()) == nil }, soon, time.Millisecond)
	l.connected(t)
}

// A renewal takes the way that other commands have found: it does not wait for an address
// that swallows what it is sent.
func TestRenewalsKnowTheWay(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := &gate{}
	g.hang.Store(true)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: g.dial})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(tunnel{addr: server.Addr()})
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	held := claim{"k", "id"}
	err := d.Acquire(t.Context(), held)
	require.NoError(t, err)
	began := time.Now()
	d.Renew(t.Context(), []claim{held}, func(_ int, err error) { require.NoError(t, err) })
	require.Less(t, time.Since(began), 3*controlTimeout/8)
}

// A release after Close, on a client that the caller has closed too, fails at once.
func TestReleaseOnAClosedClient(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	d := openToy(rdb)
	require.NoError(t, d.Close())
	require.NoError(t, rdb.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := d.Release(ctx, claim{"k", "id"})
	require.ErrorIs(t, err, redis.ErrClosed)
	require.NoError(t, ctx.Err())
}

// Commands are connected at the same time, whatever the size of the caller's pool.
func TestConnectionsAreMadeAtTheSameTime(t *testing.T) {
	t.Parallel()
	g := &gate{}
	g.hang.Store(true)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 1, Dialer: g.dial})
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	for n := range int32(2) {
		go func() {
			held := claim{"k", "id"}
			_ = d.Acquire(ctx, held)
		}()
		require.Eventually(t, func() bool { return g.dials.Load() > n }, soon, time.Millisecond)
	}
	require.Less(t, time.Since(began), controlTimeout/2, "the second one has not waited for the first")
}

// An attempt whose connection takes longer than the release that follows it waits is not
// sent any more: the lock would be held by nobody.
func TestNothingIsSentLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var dials atomic.Int32
	open := make(chan struct{})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) <= 2 { // the pipeline's, and the one for lone commands that is made beside it
			<-open
		}
		return net.Dial(network, addr)
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	held := claim{"k", "id"}
	err := d.Acquire(ctx, held)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return dials.Load() == 2 }, soon, time.Millisecond)
	if err = d.Release(t.Context(), held); err != nil { // it may have gone another way
		require.ErrorIs(t, err, errNotHeld)
	}
	close(open)
	time.Sleep(200 * time.Millisecond) // a command that is not sent is no event: one that is would arrive meanwhile
	require.Zero(t, server.Client(t).Exists(t.Context(), "k").Val())
}

// An idle connection is not made again before a command comes, and Close closes it.
func TestConnectionOfLoneCommandsRests(t *testing.T) {
	t.Parallel()
	l, g := newGated(t)
	l.connected(t)
	dials := g.dials.Load()
	l.proxy.Cut()
	time.Sleep(50 * time.Millisecond) // a dial that is not made is no event: one that is would begin meanwhile
	require.Equal(t, dials, g.dials.Load())
	l.connected(t)
	require.NoError(t, l.Close())
	d := l.commands.single.fast
	require.Nil(t, d.take(time.Now()))
	require.Eventually(t, func() bool { return strings.Count(l.direct.ClientList(t.Context()).Val(), "\n") == 1 }, soon, time.Millisecond, "the test's own")
}

// tunnel is a hook that knows the way to the server, which the client's options do not.
type tunnel struct {
	redis.Hook
	addr string
}

func (h tunnel) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", h.addr)
	}
}
func (tunnel) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (tunnel) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A client whose hook makes its connections serves the lock's commands, too.
func TestClientWhoseHookDials(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(tunnel{addr: faultproxy.Start(t, server.Addr()).Addr()})
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			held := claim{fmt.Sprint(n), "id"}
			err := d.Acquire(t.Context(), held)
			if err == nil {
				d.Renew(t.Context(), []claim{held}, func(_ int, e error) { err = e })
			}
			if err == nil {
				err = d.Release(t.Context(), held)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Where no further connection is let in, lone commands do not ask for one each time.
func TestLoneCommandsDoNotDialEachTime(t *testing.T) {
	t.Parallel()
	l, g := newGated(t)
	l.connected(t)
	g.refuse.Store(true)
	n := l.commands.single.fast.take(time.Now())
	for n == nil {
		n = l.commands.single.fast.take(time.Now())
	}
	n.netConn.interrupt()
	l.commands.single.fast.give(n)
	before, began := g.dials.Load(), time.Now()
	for range 300 {
		require.NoError(t, l.acquire(t.Context()))
	}
	require.LessOrEqual(t, g.dials.Load()-before, int32(time.Since(began)/time.Second)+2, "a dial a second")
}

// A caller that allows more than go-redis does by default gets it: for an answer, and for a
// connection.
func TestLongTimeoutsOfTheCaller(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, c := range map[string]struct {
		timeout time.Duration
		granted bool
	}{
		"chosen":  {longestDefault + time.Second, true},
		"default": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.Start(t, server.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: c.timeout, DialTimeout: c.timeout})
			t.Cleanup(func() { _ = rdb.Close() })
			d := openToy(rdb)
			t.Cleanup(func() { _ = d.Close() })
			held := claim{name, "id"}
			proxy.DelayReply(faultproxy.MatchCommand("evalsha", "eval"), 1, controlTimeout+time.Second/2)
			err := d.Acquire(t.Context(), held)
			require.Equal(t, c.granted, err == nil, "%v", err)
		})
	}
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second:                  time.Second,
		longestDefault:               controlTimeout,
		longestDefault + time.Second: longestDefault + time.Second,
	} {
		o := privateOptions(&redis.Options{DialTimeout: timeout})
		require.Equal(t, want, o.DialTimeout)
		require.Equal(t, want, privateClusterOptions(&redis.ClusterOptions{DialTimeout: timeout}).DialTimeout)
	}
}

// undying is a connection that takes no deadlines.
type undying struct{ net.Conn }

func (undying) SetDeadline(time.Time) error { return errors.New("deadline not supported") }

// A client whose connections take no deadlines is refused by the first command, and not by the first renewal.
func TestConnectionsWithoutDeadlines(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), ReadTimeout: -2, WriteTimeout: -2,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			return undying{conn}, err
		}})
	t.Cleanup(func() { _ = rdb.Close() })
	d := openToy(rdb)
	t.Cleanup(func() { _ = d.Close() })
	for range 3 {
		err := d.Acquire(t.Context(), claim{"k", "id"})
		require.ErrorContains(t, err, "deadline not supported")
		require.True(t, isPermanent(err))
		require.False(t, maybeApplied(err))
	}
}
