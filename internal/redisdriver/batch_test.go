package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// gate is a hook that holds commands back, once they have left the batches.
type gate struct {
	redis.Hook
	shut map[string]chan struct{} // by what they echo
	held chan string
}

func (g *gate) pass(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		what, _ := cmd.Args()[len(cmd.Args())-1].(string)
		if opens := g.shut[what]; opens != nil {
			g.held <- what
			<-opens
		}
	}
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(cmd)
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass(cmds...)
		return next(ctx, cmds)
	}
}

// newBatches makes one through a proxy, with as many commands on their way as there
// may be, until the function returned is called.
func newBatches(t *testing.T) (*batches, *gate, *faultproxy.Proxy, func()) {
	t.Helper()
	proxy := faultproxy.Start(t, redistest.Shared(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PipelinePoolSize: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	g := &gate{shut: map[string]chan struct{}{"slow": make(chan struct{}), "patient": make(chan struct{})}, held: make(chan string, 10)}
	rdb.AddHook(g)
	b := &batches{to: rdb}
	var answered sync.WaitGroup
	for range batchesAtOnce {
		answered.Go(func() {
			if err := b.Process(t.Context(), echo(t.Context(), "slow")); err != nil {
				t.Error(err)
			}
		})
	}
	for range batchesAtOnce {
		require.Equal(t, "slow", <-g.held)
	}
	return b, g, proxy, func() {
		close(g.shut["slow"])
		answered.Wait()
	}
}

func echo(ctx context.Context, s string) noRetry { return noRetry{redis.NewCmd(ctx, "echo", s)} }

// send has b process an echo of s, which then waits, and returns what comes of it.
func send(ctx context.Context, t *testing.T, b *batches, s string) <-chan error {
	t.Helper()
	before, done := b.waiting(), make(chan error, 1)
	go func() {
		cmd := echo(ctx, s)
		err := b.Process(ctx, cmd)
		if err == nil && cmd.Val() != s {
			err = fmt.Errorf("echo of %q: %q", s, cmd.Val())
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return b.waiting() == before+1 }, soon, 100*time.Microsecond)
	return done
}

func (b *batches) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// idle returns when nothing is on its way or waits.
func (b *batches) idle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.busy == 0 && len(b.queue) == 0
	}, soon, 100*time.Microsecond)
}

func TestBatchesShareRoundTrips(t *testing.T) {
	t.Parallel()
	b, _, proxy, open := newBatches(t)
	const n = 2*maxBatch + 1
	var all []<-chan error
	for i := range n {
		all = append(all, send(t.Context(), t, b, fmt.Sprint(i)))
	}
	before := proxy.RoundTrips()
	open()
	for i := range n {
		require.NoError(t, <-all[i])
	}
	const setUp = 2 * batchesAtOnce // of connections
	require.LessOrEqual(t, proxy.RoundTrips()-before, batchesAtOnce+3+setUp)
	b.idle(t)
	require.NoError(t, b.Process(t.Context(), echo(t.Context(), "alone")))
}

func TestBatchedCommandIsGivenUp(t *testing.T) {
	t.Parallel()
	b, _, proxy, open := newBatches(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := send(ctx, t, b, "never")
	kept := send(t.Context(), t, b, "kept")
	cancel()
	err := <-given
	require.ErrorIs(t, err, context.Canceled)
	var refined *driver.StoreError
	require.True(t, errors.As(err, &refined) && refined.NotApplied, "a command that was not sent took no effect")
	open()
	require.NoError(t, <-kept)
	require.Zero(t, proxy.Count(faultproxy.MatchContains("never")))
}

// One of a batch is given up, be it the one that leads; the others have their time.
func TestBatchLastsAsLongAsItsCommands(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"patient", "hasty"}, {"hasty", "patient"}} {
		b, g, _, open := newBatches(t)
		hasty, cancel := context.WithCancel(t.Context())
		ctx := map[string]context.Context{"patient": t.Context(), "hasty": hasty}
		ends := make(map[string]<-chan error)
		for _, s := range order {
			ends[s] = send(ctx[s], t, b, s)
		}
		g.shut["slow"] <- struct{}{} // one is through; the next batch has both
		require.Equal(t, "patient", <-g.held)
		cancel()
		err := <-ends["hasty"]
		require.ErrorIs(t, err, context.Canceled)
		var refined *driver.StoreError
		require.False(t, errors.As(err, &refined) && refined.NotApplied, "it is on its way")
		close(g.shut["patient"])
		require.NoError(t, <-ends["patient"])
		open()
		b.idle(t)
	}
}

// A caller that is told to lead a batch, and has left, passes the lead on.
func TestLeadIsPassedOn(t *testing.T) {
	t.Parallel()
	b, _, _, open := newBatches(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := &batched{ctx: ctx, cmd: echo(ctx, "first"), turn: make(chan bool, 1)}
	b.mu.Lock()
	b.queue = append(b.queue, first)
	b.mu.Unlock()
	second := send(t.Context(), t, b, "second")
	b.next() // as if one were through
	cancel()
	require.Error(t, b.abandon(first))
	require.NoError(t, <-second)
	b.mu.Lock()
	b.busy++
	b.mu.Unlock()
	open()
	b.idle(t)
}
