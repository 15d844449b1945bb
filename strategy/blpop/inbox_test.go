package blpop

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A waiter that gives up when the lock is granted to its process passes it on to the next
// waiter of the process.
func TestNextWaiterTakesTheGrant(t *testing.T) {
	redistest.NeedsBLPOP(t)
	rdb := start(t)
	waits := make(chan struct{}, 2)
	d, err := newDriver(rdb)
	require.NoError(t, err)
	l, err := redisdriver.Open(d, []locker.Option{locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			waits <- struct{}{}
		}
	}))})
	require.NoError(t, err)
	defer l.Close()
	queued := func() bool {
		d.inboxes.mu.Lock()
		defer d.inboxes.mu.Unlock()
		for _, at := range d.inboxes.asked {
			if at.refused {
				return true
			}
		}
		return false
	}
	type result struct {
		lease *locker.Lease
		err   error
	}
	lock := func(ctx context.Context) <-chan result {
		c := make(chan result, 1)
		go func() {
			lease, err := l.Lock(ctx, "k")
			c <- result{lease, err}
		}()
		<-waits
		return c
	}
	for range 20 {
		holder := hold(t, rdb)
		ctx, cancel := context.WithCancel(t.Context())
		first := lock(ctx)
		require.Eventually(t, queued, 10*time.Second, time.Millisecond)
		second, other := lock(t.Context()), takePlace(t, rdb)
		go cancel()
		require.NoError(t, holder.gives())
		// The first may be faster than its cancellation: then the others' turns follow.
		passes := func(r result) {
			require.NoError(t, r.err)
			require.NoError(t, r.lease.Unlock(t.Context()))
		}
		if r := <-first; r.err != nil {
			require.ErrorIs(t, r.err, context.Canceled)
			passes(<-second)
			second = nil
		} else {
			passes(r)
		}
		require.Eventually(t, other.wasGranted, 10*time.Second, time.Millisecond, "it had its turn")
		require.NoError(t, other.gives())
		if second != nil {
			passes(<-second)
		}
	}
}

// A server's refusal to block is logged once, and waiters poll.
func TestWithoutBLPOP(t *testing.T) {
	redistest.NeedsBLPOP(t)
	t.Parallel()
	srv := redistest.Start(t)
	srv.AddUser(t, "u", "p", "~*", "&*", "+@all", "-blpop")
	o := srv.Options()
	o.Username, o.Password = "u", "p"
	rdb := redis.NewClient(o)
	defer rdb.Close()
	var said lockedBuffer
	var ls [2]locker.Locker
	for i := range ls {
		l, err := New(rdb, locker.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
		require.NoError(t, err)
		ls[i] = l
	}
	var took []time.Duration
	for i := range 10 {
		lease, err := ls[i%2].Lock(t.Context(), "k")
		require.NoError(t, err)
		got := make(chan *locker.Lease, 1)
		go func() {
			lease, err := ls[(i+1)%2].Lock(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		inbox := srv.Client(t)
		require.Eventually(t, func() bool { return inbox.HLen(t.Context(), queueOfK).Val() > 0 }, 10*time.Second, time.Millisecond)
		start := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		lease = <-got
		took = append(took, time.Since(start))
		require.NoError(t, lease.Unlock(t.Context()))
		lists := inbox.Keys(t.Context(), "locker:inbox:*").Val()
		if i < 2 { // a process finds out when it first blocks
			inbox.Del(t.Context(), append(lists, "none")...)
			continue
		}
		require.Empty(t, lists, "nothing is pushed that no process pops")
	}
	slices.Sort(took)
	require.Less(t, took[len(took)/2], 300*time.Millisecond, "waiters poll: they do not look once a second only")
	for _, l := range ls {
		require.NoError(t, l.Close())
	}
	require.Equal(t, 2, bytes.Count(said.bytes(), []byte("waiters poll")), said.string())
	require.Contains(t, said.string(), "NOPERM")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}

func (b *lockedBuffer) string() string { return string(b.bytes()) }

// Where no connection was free, a key polls, and blocks once one is.
func TestConnectionBecomesFree(t *testing.T) {
	redistest.NeedsBLPOP(t)
	t.Parallel()
	b := watching(t)
	in := b.open[b.name("k")]
	b.mu.Lock()
	in.blocks = false // as if there were others
	b.nodes[""] = perNode
	b.mu.Unlock()
	require.False(t, refuse(t, b, request(1, "")).blocks)
	b.mu.Lock()
	b.nodes[""]--
	b.mu.Unlock()
	require.True(t, refuse(t, b, request(2, "")).blocks)
}

// One round trip takes all that was pushed.
func TestManyAtOnce(t *testing.T) {
	redistest.NeedsBLPOP(t)
	if !redistest.AtLeast(6, 2) {
		t.Skip("LPOP takes a count since Redis 6.2")
	}
	rdb := start(t)
	d := open(t, rdb)
	for i := range 5 {
		require.NoError(t, rdb.RPush(t.Context(), "list", fmt.Sprint(i)).Err())
	}
	got, err := d.inboxes.blocking.Pop(t.Context(), "list", true)
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, got)
	require.NoError(t, rdb.RPush(t.Context(), "list", "5", "6").Err())
	got, err = d.inboxes.blocking.Pop(t.Context(), "list", false)
	require.NoError(t, err)
	require.Equal(t, []string{"5"}, got)
	require.NoError(t, rdb.Del(t.Context(), "list").Err())
	_, err = d.inboxes.blocking.Pop(t.Context(), "list", true)
	require.ErrorIs(t, err, redis.Nil)
}
