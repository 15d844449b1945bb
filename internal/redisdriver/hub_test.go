package redisdriver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// soon is how long what takes a round trip or two may take on a busy machine.
const soon = 10 * time.Second

const prefix = "redisson_lock__channel:"

// newSignals makes the Signals of a driver on rdb.
func newSignals(t *testing.T, rdb redis.UniversalClient) *Signals {
	t.Helper()
	d, err := NewDriver(rdb, Protocol{Name: "test"})
	require.NoError(t, err)
	s := d.NewSignals(prefix)
	t.Cleanup(func() {
		s.Close()
		_ = d.Close()
	})
	return s
}

func mustWatch(t *testing.T, s *Signals, key string) driver.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), key)
	require.NoError(t, err, "watch on %q", key)
	return w
}

// drain takes the signal that w holds, if any.
func drain(w driver.Watch) {
	select {
	case <-w.C():
	default:
	}
}

// wantSignal waits for a signal of w, or its end.
func wantSignal(t *testing.T, w driver.Watch, open bool, why string) {
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
	s := &session{pending: make(map[string]int), writing: true} // what is enqueued stays there
	h := &hub{topics: make(map[string]*topic), cur: s}
	listener := func() *watch { return &watch{channel: "c", signal: func() {}, ended: func() {}} }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.watch(ended, listener())
	require.ErrorIs(t, err, context.Canceled)
	stands := make(chan error)
	go func() {
		_, err := h.watch(t.Context(), listener())
		stands <- err
	}()
	pending := func() (ops []op, ready bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		t := h.topics["c"]
		return s.ops, t != nil && t.ready == nil
	}
	require.Eventually(t, func() bool { ops, _ := pending(); return len(ops) == 3 }, soon, time.Millisecond, "the second subscription is sent")
	ops, _ := pending()
	require.Equal(t, []op{{subscribe: true, channel: "c"}, {channel: "c"}, {subscribe: true, channel: "c"}}, ops)

	h.confirm(s, "c")
	_, ready := pending()
	require.False(t, ready, "that was the answer to the first subscription: an unsubscription comes after it")
	h.confirm(s, "c")
	require.NoError(t, <-stands)

	h.confirm(&session{pending: make(map[string]int)}, "c")
	_, ready = pending()
	require.True(t, ready, "another session's confirmation is no concern of this one")
}

// All watches of a Locker share one connection, which is there only while
// somebody watches and a moment longer.
func TestOneConnectionWhileWatched(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newSignals(t, rdb)
	require.Empty(t, connections(t, rdb, true), "nobody watches yet")
	var watches []driver.Watch
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
	channel, _ := s.Channel("k0")
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
	s := newSignals(t, rdb)
	watches := make(map[string]driver.Watch)
	for _, key := range []string{"a", "b", "c"} {
		watches[key] = mustWatch(t, s, key)
		drain(watches[key]) // a confirmation may signal
	}
	require.EqualValues(t, 1, rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Val())
	for key, w := range watches {
		wantSignal(t, w, true, "messages may have been missed")
		channel, _ := s.Channel(key)
		require.Eventually(t, func() bool { return rdb.Publish(t.Context(), channel, "0").Val() == 1 }, soon, 10*time.Millisecond, "subscribed again")
	}
	for _, w := range watches {
		drain(w)
	}
	for key, w := range watches {
		channel, _ := s.Channel(key)
		// A signal left of the reconnection may be taken for the message; so twice.
		// (And go-redis may have reconnected the session that the hub then replaces.)
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
	s := &session{ps: gone.Subscribe(t.Context()), pending: map[string]int{"c": 1}, writing: true}
	h := &hub{client: gone, cur: s, topics: map[string]*topic{"c": {
		ready:   make(chan struct{}),
		watches: map[*watch]struct{}{{signal: func() { signals++ }, ended: func() {}}: {}},
	}}}
	h.confirm(s, "c")
	require.Equal(t, 1, signals, "a message may have been missed before")
	h.fail(s, io.EOF)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Equal(t, 1, signals)
	require.NotNil(t, h.topics["c"].ready, "who comes now waits for the next one")
	require.NotNil(t, h.due, "another connection is made in a moment")
	h.due.Stop()
}

// bob is a client of a user with some rules, and the administrator's.
func bob(t *testing.T, rules ...any) (rdb, admin *redis.Client) {
	t.Helper()
	srv := redistest.Start(t)
	admin = srv.Client(t)
	args := append([]any{"acl", "setuser", "bob", "on", ">pw", "~*", "+@all", "resetchannels"}, rules...)
	require.NoError(t, admin.Do(t.Context(), args...).Err())
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
	s := newSignals(t, rdb)
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
	rdb, admin := bob(t, "&"+prefix+"{good*")
	s := newSignals(t, rdb)
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
			channel, _ := s.Channel(key)
			if n := admin.Publish(t.Context(), channel, "0").Val(); n != 1 {
				t.Errorf("%s is heard by %d", key, n)
			}
		})
	}
	all.Wait()
	channel, _ := s.Channel("good")
	drain(first)
	require.EqualValues(t, 1, admin.Publish(t.Context(), channel, "0").Val())
	wantSignal(t, first, true, "it has been watched all the time")
	require.Equal(t, id, connections(t, admin, true), "by the same connection")
}

// Closing the Signals ends all watches, those being made included, and leaves no
// connection.
func TestClosedSignals(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newSignals(t, rdb)
	w := mustWatch(t, s, "a")
	id := connections(t, rdb, true)[0]
	s.Close()
	wantSignal(t, w, false, "the Signals are closed")
	w.Close()
	_, err := s.Watch(t.Context(), "b")
	require.ErrorIs(t, err, redis.ErrClosed)
	wantGone(t, rdb, id)
}
