package redispubsub

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// soon is how long what takes a round trip or two may take on a busy machine.
const soon = 10 * time.Second

const prefix = "redisson_lock__channel:"

// newChannels makes the Channels of the deployment that rdb speaks to.
func newChannels(t *testing.T, rdb redis.UniversalClient) *Channels {
	t.Helper()
	conn := redisconn.Open(rdb)
	s := New(conn, prefix)
	t.Cleanup(func() {
		s.Close()
		_ = conn.Close()
	})
	return s
}

func mustWatch(t *testing.T, s *Channels, key string) *Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), key)
	require.NoError(t, err, "watch on %q", key)
	return w
}

// drain takes the signal that w holds, if any.
func drain(w *Watch) {
	select {
	case <-w.C():
	default:
	}
}

// wantSignal waits for a signal of w, or its end.
func wantSignal(t *testing.T, w *Watch, open bool, why string) {
	t.Helper()
	end := time.After(soon)
	for {
		select {
		case _, ok := <-w.C():
			if ok == open {
				return
			}
			require.True(t, ok, "C was closed: %s", why)
		case <-end:
			require.Fail(t, "nothing came from C", why)
		}
	}
}

// connections are the ids of the connections to the server; those that are
// subscribed to something or all.
func connections(t *testing.T, rdb *redis.Client, subscribed bool) []string {
	t.Helper()
	args := []any{"client", "list"}
	if subscribed {
		args = append(args, "type", "pubsub")
	}
	list, err := rdb.Do(t.Context(), args...).Text()
	require.NoError(t, err)
	var ids []string
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ") // id=7
		ids = append(ids, id)
	}
	return ids
}

// wantGone waits until the connection has been closed.
func wantGone(t *testing.T, rdb *redis.Client, id string) {
	t.Helper()
	require.Eventually(t, func() bool { return !slices.Contains(connections(t, rdb, false), id) }, soon, 10*time.Millisecond,
		"a connection that nobody needs is closed")
}

// A watch stands when its own subscription is confirmed, not an abandoned earlier
// one, after which an unsubscription is still to come.
func TestStaleConfirmation(t *testing.T) {
	s := &connection{pending: make(map[string]int), writing: true} // what is enqueued stays there
	h := &subscriber{subscriptions: make(map[string]*subscription), conn: s}
	newListener := func() *listener { return &listener{s: h, channel: "c", message: func(string) {}, ended: func() {}} }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := h.listen(ended, newListener())
	require.ErrorIs(t, err, context.Canceled)
	stands := make(chan error)
	go func() {
		stands <- h.listen(t.Context(), newListener())
	}()
	pending := func() (queue []command, ready bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		t := h.subscriptions["c"]
		return s.queue, t != nil && t.ready == nil
	}
	require.Eventually(t, func() bool { ops, _ := pending(); return len(ops) == 3 }, soon, time.Millisecond, "the second subscription is sent")
	ops, _ := pending()
	require.Equal(t, []command{{subscribe: true, channel: "c"}, {channel: "c"}, {subscribe: true, channel: "c"}}, ops)

	h.confirm(s, "c")
	_, ready := pending()
	require.False(t, ready, "that was the answer to the first subscription: an unsubscription comes after it")
	h.confirm(s, "c")
	require.NoError(t, <-stands)

	h.confirm(&connection{pending: make(map[string]int)}, "c")
	_, ready = pending()
	require.True(t, ready, "another connection's confirmation is no concern of this one")
}

// All watches of a Locker share one connection, which is there only while
// somebody watches and a moment longer.
func TestOneConnectionWhileWatched(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newChannels(t, rdb)
	require.Empty(t, connections(t, rdb, true), "nobody watches yet")
	var watches []*Watch
	for i := range 50 {
		watches = append(watches, mustWatch(t, s, fmt.Sprint("k", i%25))) // two of each
	}
	first := connections(t, rdb, true)
	require.Len(t, first, 1, "all watches share one connection")
	channels, err := rdb.PubSubChannels(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, channels, 25)

	for _, w := range watches[:25] {
		w.Close()
		w.Close() // idempotent
	}
	channel, _ := s.Of("k0")
	require.EqualValues(t, 1, rdb.Publish(t.Context(), channel, "0").Val(), "the other watch of the channel stays")
	drain(watches[0])
	wantSignal(t, watches[25], true, "the other watch of the channel stays")
	for _, w := range watches[25:] {
		w.Close()
	}
	require.Eventually(t, func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) == 0
	}, soon, time.Millisecond, "who does not watch is not subscribed")
	again := mustWatch(t, s, "k0")
	require.Equal(t, first, connections(t, rdb, true), "who contended once will do so again: the connection is kept for a moment")
	require.EqualValues(t, 1, rdb.Publish(t.Context(), channel, "0").Val())
	wantSignal(t, again, true, "it serves new watches")
	again.Close()
	wantGone(t, rdb, first[0])

	again = mustWatch(t, s, "k0")
	require.EqualValues(t, 1, rdb.Publish(t.Context(), channel, "0").Val())
	wantSignal(t, again, true, "a new connection serves new watches")
}

// After a broken connection everybody is woken, for messages may have been
// missed, and subscribed again.
func TestReconnect(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newChannels(t, rdb)
	watches := make(map[string]*Watch)
	for _, key := range []string{"a", "b", "c"} {
		watches[key] = mustWatch(t, s, key)
		drain(watches[key]) // a confirmation may signal
	}
	require.EqualValues(t, 1, rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Val())
	for key, w := range watches {
		wantSignal(t, w, true, "messages may have been missed")
		channel, _ := s.Of(key)
		require.Eventually(t, func() bool { return rdb.Publish(t.Context(), channel, "0").Val() == 1 }, soon, 10*time.Millisecond, "subscribed again")
	}
	for _, w := range watches {
		drain(w)
	}
	for key, w := range watches {
		channel, _ := s.Of(key)
		// A signal left of the reconnection may be taken for the message; so twice.
		// (And go-redis may have reconnected the connection that the subscriber then replaces.)
		for range 2 {
			require.Eventually(t, func() bool { return rdb.Publish(t.Context(), channel, "0").Val() == 1 }, soon, 10*time.Millisecond, "subscribed for good")
			wantSignal(t, w, true, "messages arrive again")
		}
	}
	require.Eventually(t, func() bool { return len(connections(t, rdb, true)) == 1 }, soon, 10*time.Millisecond, "one connection serves all")
	mustWatch(t, s, "new")
}

// A connection that is cut wakes nobody before the next one stands: a release may be heard
// then, and many waiters would all ask a server in trouble at the same time.
func TestCutConnectionWakesNobodyYet(t *testing.T) {
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer gone.Close()
	signals := 0
	s := &connection{pubsub: gone.Subscribe(t.Context()), pending: map[string]int{"c": 1}, writing: true}
	h := &subscriber{client: gone, conn: s, subscriptions: map[string]*subscription{"c": {
		ready:     make(chan struct{}),
		listeners: map[*listener]struct{}{{message: func(string) { signals++ }, ended: func() {}}: {}},
	}}}
	h.confirm(s, "c")
	require.Equal(t, 1, signals, "a message may have been missed before")
	h.fail(s, io.EOF)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, 1, signals)
	require.NotNil(t, h.subscriptions["c"].ready, "who comes now waits for the next one")
	require.NotNil(t, h.reconnect, "another connection is made in a moment")
	h.reconnect.Stop()
}

// bob is a client of a user with some rules, and the administrator's.
func bob(t *testing.T, rules ...string) (rdb, admin *redis.Client) {
	t.Helper()
	srv := redistest.Start(t)
	admin = srv.Client(t)
	srv.AddUser(t, "bob", "pw", append([]string{"~*", "+@all"}, rules...)...)
	o := srv.Options()
	o.Username, o.Password = "bob", "pw"
	rdb = redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, admin
}

// A server that refuses all subscriptions ends every watch on its connection, and is
// not asked again for a while.
func TestRefusedSubscription(t *testing.T) {
	t.Parallel()
	rdb, admin := bob(t, "&*")
	s := newChannels(t, rdb)
	w := mustWatch(t, s, "allowed")
	id := connections(t, admin, true)[0]
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "bob", "-subscribe").Err())
	_, err := s.Watch(t.Context(), "forbidden")
	require.ErrorContains(t, err, "NOPERM")
	wantSignal(t, w, false, "its connection has been given up")
	w.Close()
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "bob", "+subscribe").Err())
	_, err = s.Watch(t.Context(), "allowed")
	require.ErrorContains(t, err, "NOPERM", "the refusal is believed for a while")
	wantGone(t, admin, id)
}

// A channel that the user may not hear of is the trouble of its own watches, whatever else
// is in the same command.
func TestForbiddenChannel(t *testing.T) {
	t.Parallel()
	redistest.NeedsChannelRules(t)
	rdb, admin := bob(t, "&"+prefix+"{good*")
	s := newChannels(t, rdb)
	first := mustWatch(t, s, "good")
	id := connections(t, admin, true)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			key := fmt.Sprint([]string{"good", "bad"}[i%2], i)
			w, err := s.Watch(t.Context(), key)
			if i%2 == 1 {
				if err == nil || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("%s: %v, want NOPERM", key, err)
				}
				return
			}
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			defer w.Close()
			channel, _ := s.Of(key)
			if n := admin.Publish(t.Context(), channel, "0").Val(); n != 1 {
				t.Errorf("%s is heard by %d", key, n)
			}
		})
	}
	all.Wait()
	channel, _ := s.Of("good")
	drain(first)
	require.EqualValues(t, 1, admin.Publish(t.Context(), channel, "0").Val())
	wantSignal(t, first, true, "it has been watched all the time")
	require.Equal(t, id, connections(t, admin, true), "by the same connection")
}

// Close ends all watches, those being made included, and leaves no
// connection.
func TestClosedChannels(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newChannels(t, rdb)
	w := mustWatch(t, s, "a")
	id := connections(t, rdb, true)[0]
	s.Close()
	wantSignal(t, w, false, "they are closed")
	w.Close()
	_, err := s.Watch(t.Context(), "b")
	require.ErrorIs(t, err, redis.ErrClosed)
	wantGone(t, rdb, id)
}

// An empty message is anybody's. It is not taken for a new connection, for which Listen calls with "".
func TestEmptyMessageIsNoNewConnection(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	s := newChannels(t, rdb)
	heard := make(chan string, 8)
	l, err := s.Listen(t.Context(), "k", func(payload string) { heard <- payload }, func() {})
	require.NoError(t, err)
	defer l.Close()
	require.Empty(t, <-heard, "the subscription stands")
	channel, _ := s.Of("k")
	for _, message := range []string{"", "x"} {
		require.NoError(t, rdb.Publish(t.Context(), channel, message).Err())
	}
	require.Equal(t, "x", <-heard)
}
