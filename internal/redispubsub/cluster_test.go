package redispubsub

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startCluster starts a cluster of one node that has all slots. That takes two
// seconds, so tests that need one run beside each other.
func startCluster(t *testing.T) (*redistest.Server, *redis.ClusterClient) {
	t.Helper()
	t.Parallel()
	srv := redistest.StartClusterOfOne(t, redistest.WithConfig("--cluster-require-full-coverage", "no"))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	return srv, c
}

func needsShardedPubSub(t *testing.T) {
	t.Helper()
	if !redistest.AtLeast(7, 0) {
		t.Skip("sharded pub/sub came with Redis 7.0")
	}
}

// Many subscriptions at once are cut by slot: a server of a cluster takes only
// channels of one slot in one command.
func TestSubscriptionsAreCutBySlot(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	s := newChannels(t, c)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("k", i), fmt.Sprint("{same}", i), fmt.Sprint("{}", i))
	}
	watches := make([]*Watch, len(keys))
	round := func(then func(i int)) {
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() { then(i) })
		}
		all.Wait()
	}
	round(func(i int) {
		w, err := s.Watch(t.Context(), keys[i])
		if err != nil {
			t.Errorf("Watch(%q): %v, want a watch", keys[i], err)
			return
		}
		watches[i] = w
	})
	require.False(t, t.Failed())
	for i, key := range keys {
		channel, publish := s.Of(key)
		require.Equal(t, "SPUBLISH", publish, "a cluster of Redis 7 has sharded pub/sub")
		require.Equal(t, redisconn.Slot(key), redisconn.Slot(channel), "a script may publish in its key's slot only")
		drain(watches[i])
		require.EqualValues(t, 1, c.SPublish(t.Context(), channel, "0").Val(), "receivers of %q", channel)
		wantSignal(t, watches[i], true, "a release was told")
	}
	ids := connections(t, srv.Client(t), true)
	require.Len(t, ids, 1, "one connection for a node")
	round(func(i int) { watches[i].Close() })
	wantGone(t, srv.Client(t), ids[0])
}

// When the server unsubscribes a channel, because its slot moves away, that watch
// ends, and the others stay.
func TestMovedSlotEndsItsWatches(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	s := newChannels(t, c)
	moving, staying := mustWatch(t, s, "a"), mustWatch(t, s, "b")
	require.NotEqual(t, redisconn.Slot("a"), redisconn.Slot("b"))
	require.NoError(t, srv.Client(t).ClusterDelSlots(t.Context(), redisconn.Slot("a")).Err())
	wantSignal(t, moving, false, "the server signals no more")
	moving.Close()

	channel, _ := s.Of("b")
	drain(staying)
	require.EqualValues(t, 1, srv.Client(t).SPublish(t.Context(), channel, "0").Val())
	wantSignal(t, staying, true, "its slot has not moved")
}

// A server whose last subscription has moved away keeps no connection.
func TestMovedSlotsLeaveNoConnection(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	s := newChannels(t, c)
	w := mustWatch(t, s, "a")
	ids := connections(t, srv.Client(t), true)
	require.Len(t, ids, 1)
	require.NoError(t, srv.Client(t).ClusterDelSlots(t.Context(), redisconn.Slot("a")).Err())
	wantSignal(t, w, false, "the server signals no more")
	w.Close()
	wantGone(t, srv.Client(t), ids[0])
}

// The refusal of a channel whose slot has moved ends its watch and no other.
func TestRefusedSlotEndsItsWatchesOnly(t *testing.T) {
	needsShardedPubSub(t)
	first, c := startCluster(t)
	second := redistest.Start(t, redistest.WithConfig("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"))
	node := first.Client(t)
	host, port, err := net.SplitHostPort(second.Addr())
	require.NoError(t, err)
	require.NoError(t, node.ClusterMeet(t.Context(), host, port).Err())
	id, err := second.Client(t).ClusterMyID(t.Context()).Result()
	require.NoError(t, err)
	give := func(on *redis.Client) error {
		return on.Do(t.Context(), "cluster", "setslot", redisconn.Slot("a"), "node", id).Err()
	}
	require.Eventually(t, func() bool { return give(second.Client(t)) == nil }, soon, 10*time.Millisecond)
	s := newChannels(t, c)
	staying := mustWatch(t, s, "b")
	ids := connections(t, node, true)
	require.Eventually(t, func() bool { return give(node) == nil }, soon, 10*time.Millisecond, "the slot moves")

	require.Eventually(t, func() bool {
		_, err := s.Watch(t.Context(), "a")
		return err == nil
	}, soon, 10*time.Millisecond, "it is watched at the other node")
	require.Equal(t, ids, connections(t, node, true))
	channel, _ := s.Of("b")
	drain(staying)
	require.EqualValues(t, 1, node.SPublish(t.Context(), channel, "0").Val())
	wantSignal(t, staying, true, "its slot has not moved")
}

// Leaving a channel and joining it again at once is no move.
func TestRejoiningIsNoMove(t *testing.T) {
	needsShardedPubSub(t)
	_, c := startCluster(t)
	s := newChannels(t, c)
	other := mustWatch(t, s, "{k}other") // keeps the connection
	defer other.Close()
	channel, _ := s.Of("k")
	for range 100 {
		w := mustWatch(t, s, "k")
		w.Close()
		w = mustWatch(t, s, "k")
		drain(w)
		require.EqualValues(t, 1, c.SPublish(t.Context(), channel, "0").Val())
		wantSignal(t, w, true, "it is subscribed")
		w.Close()
	}
}

// A broken connection to a node ends its watches: the slots may have another node
// by now. New ones stand on a new connection.
func TestBrokenConnectionOfACluster(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	s := newChannels(t, c)
	a, b := mustWatch(t, s, "a"), mustWatch(t, s, "b")
	require.EqualValues(t, 1, srv.Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Val())
	for _, w := range []*Watch{a, b} {
		wantSignal(t, w, false, "whoever watches asks again where")
		w.Close()
	}
	channel, _ := s.Of("a")
	w := mustWatch(t, s, "a")
	require.EqualValues(t, 1, c.SPublish(t.Context(), channel, "0").Val())
	wantSignal(t, w, true, "the new watch stands")
}

// A release does not wait for the probe of a cluster that does not answer.
func TestChannelOfASilentCluster(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	srv.Pause()
	defer srv.Resume()
	s := newChannels(t, c)
	start := time.Now()
	channel, publish := s.Of("k")
	require.Less(t, time.Since(start), commandTimeout/4, "the probe goes on in the background")
	require.Equal(t, prefix+"{k}", channel)
	require.Equal(t, "PUBLISH", publish, "what every server has, until more is known")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Watch(ctx, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded, "a Watch waits for the answer, but not longer than it may")
	srv.Resume()
	mustWatch(t, s, "k")
	_, publish = s.Of("k")
	require.Equal(t, "SPUBLISH", publish, "asked again, now that it answers")
}

// Where a cluster has not answered whether it has sharded pub/sub, no subscription stands that would hear nothing.
func TestNobodyListensInVain(t *testing.T) {
	needsShardedPubSub(t)
	srv, _ := startCluster(t)
	p := faultproxy.Start(t, srv.Addr())
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.Addr())
	}})
	defer c.Close()
	unanswered := p.ResetBefore(faultproxy.MatchCommand("PUBSUB"), 0)
	s := newChannels(t, c)
	_, err := s.Watch(t.Context(), "k")
	require.ErrorIs(t, err, errUnknown)
	require.Positive(t, unanswered.Fired())
	unanswered.Stop()
	var w *Watch
	require.Eventually(t, func() bool {
		w, err = s.Watch(t.Context(), "k")
		return err == nil
	}, soon, time.Millisecond)
	channel, _ := s.Of("k")
	drain(w)
	require.EqualValues(t, 1, srv.Client(t).SPublish(t.Context(), channel, "0").Val())
	wantSignal(t, w, true, "it is heard")
}

// A process that only releases learns, too, what a cluster can that was silent at first.
func TestPublisherAsksASilentClusterAgain(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	srv.Pause()
	defer srv.Resume()
	s := newChannels(t, c)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.probing == nil
	}, soon, time.Millisecond)
	srv.Resume()
	require.Eventually(t, func() bool {
		_, publish := s.Of("k")
		return publish == "SPUBLISH"
	}, soon, time.Millisecond)
}

// How releases are told, and listened to, can be set, whatever the cluster can.
func TestPubSubAsSet(t *testing.T) {
	_, c := startCluster(t)
	for _, sharded := range []bool{false, true} {
		if sharded && !redistest.AtLeast(7, 0) {
			continue // it has no sharded pub/sub
		}
		s := newChannels(t, c)
		s.SetSharded(sharded)
		w := mustWatch(t, s, "k")
		drain(w)
		channel, publish := s.Of("k")
		require.Equal(t, map[bool]string{false: "PUBLISH", true: "SPUBLISH"}[sharded], publish)
		require.EqualValues(t, 1, c.Do(t.Context(), publish, channel, "0").Val())
		wantSignal(t, w, true, publish)
	}
	s := newChannels(t, redistest.Shared(t).Client(t))
	s.SetSharded(true)
	_, publish := s.Of("k")
	require.Equal(t, "PUBLISH", publish, "on a single server it says nothing")
}

// A subscriber that was made before it was known how releases are told does not stay as it is.
func TestSubscribersLearnThatPubSubIsSharded(t *testing.T) {
	needsShardedPubSub(t)
	srv, c := startCluster(t)
	s := newChannels(t, c)
	if probing := s.probe(); probing != nil {
		<-probing
	}
	as := func(sharded bool) { // as after a probe that failed, and as after the next one
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sharded, s.probed = sharded, true
	}
	as(false)
	before := mustWatch(t, s, "a")
	as(true)
	after := mustWatch(t, s, "b")
	channel, publish := s.Of("b")
	require.Equal(t, "SPUBLISH", publish)
	require.EqualValues(t, 1, srv.Client(t).SPublish(t.Context(), channel, "0").Val(), "it is heard")
	wantSignal(t, after, true, "it is heard")
	wantSignal(t, before, false, "it would hear nothing: its waiter watches again")
}
