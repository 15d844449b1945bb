package strategy

import (
	"context"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// spy opens Lockers in memory and keeps the clients it was given.
type spy struct {
	clients []redis.UniversalClient
	err     error
}

func (s *spy) registry(t *testing.T) *Registry {
	t.Helper()
	r := new(Registry)
	require.NoError(t, r.Register("one", Opener{Redis: func(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		s.clients = []redis.UniversalClient{rdb}
		if s.err != nil {
			return nil, s.err
		}
		return memory.New(opts...)
	}}))
	require.NoError(t, r.Register("many", Opener{Nodes: func(rdbs []redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
		s.clients = rdbs
		if s.err != nil {
			return nil, s.err
		}
		return memory.New(opts...)
	}}))
	return r
}

func isClosed(rdb redis.UniversalClient) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Is(rdb.Ping(ctx).Err(), redis.ErrClosed)
}

// nowhere is a client whose connections are refused at once.
func nowhere(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("nowhere")
	}, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestReleaseClosesWhatOpenMade(t *testing.T) {
	for _, u := range []string{"one+unix:///nowhere", "many+unix:///nowhere?node=/2&node=/3"} {
		var s spy
		l, release, err := s.registry(t).OpenURL(t.Context(), u)
		require.NoError(t, err)
		require.NotEmpty(t, s.clients)
		for range 2 { // it may be called more than once
			release()
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, locker.ErrClosed)
			for _, rdb := range s.clients {
				require.True(t, isClosed(rdb))
			}
		}
	}
}

func TestReleaseLeavesTheCallersClients(t *testing.T) {
	a, b, c := nowhere(t), nowhere(t), nowhere(t)
	for _, cfg := range []Config{
		{Strategy: "one", Client: a},
		{Strategy: "many", Clients: []redis.UniversalClient{a, b, c}},
	} {
		var s spy
		l, release, err := s.registry(t).Open(t.Context(), cfg)
		require.NoError(t, err)
		require.Same(t, a, s.clients[0])
		release()
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, locker.ErrClosed)
		for _, rdb := range s.clients {
			require.False(t, isClosed(rdb))
		}
	}
}

func TestFailedOpenLeavesNothing(t *testing.T) {
	for _, u := range []string{"one+unix:///nowhere", "many+unix:///nowhere?node=/2&node=/3"} {
		s := spy{err: errors.New("no")}
		_, _, err := s.registry(t).OpenURL(t.Context(), u)
		require.ErrorIs(t, err, s.err)
		for _, rdb := range s.clients {
			require.True(t, isClosed(rdb))
		}
	}
	a := nowhere(t)
	s := spy{err: errors.New("no")}
	_, _, err := s.registry(t).Open(t.Context(), Config{Strategy: "one", Client: a})
	require.ErrorIs(t, err, s.err)
	require.False(t, isClosed(a))
}

func TestFieldsReachTheLocker(t *testing.T) {
	ctx := t.Context()
	store := memory.NewStore()
	var r Registry
	require.NoError(t, r.Register("mem", Opener{Other: func(_ context.Context, _ *url.URL, opts ...locker.Option) (*locker.Client, func(), error) {
		l, err := store.New(opts...)
		return l, nil, err
	}}))
	open := func(cfg Config) locker.Locker {
		l, release, err := r.Open(ctx, cfg)
		require.NoError(t, err)
		t.Cleanup(release)
		return l
	}
	lock := func(l locker.Locker, key string) *locker.Lease {
		lease, err := l.Lock(ctx, key)
		require.NoError(t, err)
		return lease
	}
	left := func(lease *locker.Lease) time.Duration { return time.Until(lease.Deadline()) }

	lease := lock(open(Config{URL: "mem://?prefix=app:&ttl=1h&fencing=0"}), "k")
	require.Equal(t, []string{"app:k"}, store.Keys())
	require.Greater(t, left(lease), 50*time.Minute)
	require.Zero(t, lease.Token())

	lease = lock(open(Config{Strategy: "mem"}), "k")
	require.NotZero(t, lease.Token())
	require.InDelta(t, locker.DefaultTTL, left(lease), float64(2*time.Second))
	_, err := open(Config{URL: "mem://?wait=20ms"}).Lock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)

	lease = lock(open(Config{Strategy: "mem", Fencing: new(true), Renewal: new(true), MaxHold: 50 * time.Millisecond}), "held")
	await(t, lease.Lost())
	lease = lock(open(Config{Strategy: "mem", TTL: 200 * time.Millisecond, RenewInterval: 10 * time.Millisecond, MaxRenewals: 1}), "renewed")
	await(t, lease.Lost())
	require.Positive(t, left(lease), "a limit ends it before its time")
	lease = lock(open(Config{Strategy: "mem", TTL: 200 * time.Millisecond, Renewal: new(false)}), "not renewed")
	await(t, lease.Lost())
	require.LessOrEqual(t, left(lease), time.Duration(0))

	lease = lock(open(Config{Strategy: "mem", TTL: time.Minute, Options: []locker.Option{locker.WithTTL(time.Hour)}}), "option")
	require.Greater(t, left(lease), 50*time.Minute, "options override fields")
	lock(open(Config{Strategy: "mem", RenewInterval: time.Minute, Options: []locker.Option{locker.WithTTL(time.Hour)}}), "interval")
	_, _, err = r.Open(ctx, Config{Strategy: "mem", RenewInterval: time.Minute, Options: []locker.Option{locker.WithTTL(time.Second)}})
	require.ErrorIs(t, err, locker.ErrInvalid)
}

func TestReplicaAcks(t *testing.T) {
	var acks []any
	var r Registry
	require.NoError(t, r.Register("acks", Opener{
		Redis: func(_ redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) { return memory.New() },
		ReplicaAcks: func(n int, timeout time.Duration) locker.Option {
			acks = append(acks, n, timeout)
			return locker.WithoutFencing()
		},
	}))
	for _, query := range []string{"", "?replica_acks=2", "?replica_acks=3&replica_acks_timeout=3s", "?replica_acks=4&ttl=1s"} {
		_, release, err := r.OpenURL(t.Context(), "acks+unix:///nowhere"+query)
		require.NoError(t, err)
		release()
	}
	require.Equal(t, []any{2, time.Second, 3, 3 * time.Second, 4, 500 * time.Millisecond}, acks)
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing happened")
	}
}
