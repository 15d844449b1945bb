package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// withPassword is a server with authentication. It returns how often the driver's client has asked for a token.
func withPassword(t *testing.T) (*harness, driver.Driver, *atomic.Int32) {
	t.Helper()
	s, err := members.Take()
	require.NoError(t, err)
	t.Cleanup(func() { members.Put(s, true) })
	h := &harness{s: s, admin: newClient(t, s)}
	require.NoError(t, h.authEnable(t.Context()))
	tokens := new(atomic.Int32)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Username: "root", Password: "root", Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/Authenticate") {
				tokens.Add(1)
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	d := etcd.NewDriver(client)
	t.Cleanup(func() { _ = d.Close() })
	return h, d, tokens
}

// renewAll returns the errors of a Renew that has much time: no try is sent once more.
func renewAll(ctx context.Context, d driver.Driver, claims ...driver.Claim) (failed []error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	d.Renew(ctx, claims, func(_ int, err error) {
		if err != nil {
			failed = append(failed, err)
		}
	})
	return failed
}

// A client with a password asks for a token when it opens a stream. 16 batches of renewals open 16 streams at most,
// however often they come.
func TestStreamsAreKept(t *testing.T) {
	t.Parallel()
	_, d, tokens := withPassword(t)
	claims := make([]driver.Claim, 1000)
	for i := range claims {
		claims[i] = driver.Claim{Key: fmt.Sprint("key ", i), ID: fmt.Sprint("id ", i), Owner: "o", TTL: time.Minute}
		a, err := d.Acquire(t.Context(), driver.Request{Claim: claims[i]})
		require.NoError(t, err)
		require.True(t, a.Granted)
	}
	for range 5 {
		require.Empty(t, renewAll(t.Context(), d, claims...))
	}
	require.LessOrEqual(t, tokens.Load(), int32(1+16), "the client's own token, and one for each stream")
}

// etcd has forgotten the token of a stream that was kept: the renewal opens another stream.
func TestStreamWithoutAToken(t *testing.T) {
	t.Parallel()
	h, d, tokens := withPassword(t)
	req := request("id")
	_, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, renewAll(t.Context(), d, req.Claim))
	before := tokens.Load()
	require.NoError(t, h.authDisable(t.Context()))
	_, err = h.admin.AuthEnable(t.Context())
	require.NoError(t, err)
	require.Empty(t, renewAll(t.Context(), d, req.Claim))
	require.Greater(t, tokens.Load(), before)
}

// A keep-alive is answered after its renewal has ended. The next renewal does not take that answer for its own.
func TestLateAnswerOfAKeepAlive(t *testing.T) {
	t.Parallel()
	c := request("id").Claim
	server := &deposed{holder: etcd.MemberName(c.Key, c.ID), term: 5}
	d := server.serve(t)
	_, err := d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.Empty(t, renewAll(t.Context(), d, c)) // moves it from the first lease of the process, which has no term
	require.Empty(t, renewAll(t.Context(), d, c))
	moves := func() (n int) {
		server.set(func() { n = server.moves })
		return n
	}
	require.Equal(t, 1, moves())

	late := make(chan struct{})
	server.set(func() { server.late = late })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NotEmpty(t, renewAll(ctx, d, c))
	server.set(func() { server.late, server.ended = nil, true })
	close(late)
	require.Empty(t, renewAll(t.Context(), d, c))
	require.Equal(t, 2, moves(), "the lease has ended, and so the claim moves to another one")
}

// The streams that were kept lead to one server, and it is frozen. A renewal waits for one of them only.
func TestKeptStreamsToOneFrozenServer(t *testing.T) {
	t.Parallel()
	c := request("id").Claim
	server := &deposed{holder: etcd.MemberName(c.Key, c.ID), term: 5}
	d := server.serve(t)
	_, err := d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.Empty(t, renewAll(t.Context(), d, c))
	late, arrived := make(chan struct{}), make(chan struct{})
	server.set(func() { server.late, server.arrived = late, arrived })
	var renewals sync.WaitGroup
	for range 3 {
		renewals.Go(func() { assert.Empty(t, renewAll(t.Context(), d, c)) })
	}
	for range 3 {
		<-arrived
	}
	server.set(func() { server.late, server.arrived = nil, nil })
	close(late)
	renewals.Wait()

	server.set(func() { server.frozen = server.streams })
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	require.Empty(t, renewAll(ctx, d, c))
}

// A server without a leader refuses the keep-alives, not the stream: the next server gets them at once.
func TestStreamToAServerWithoutALeader(t *testing.T) {
	t.Parallel()
	c := request("id").Claim
	server := &deposed{holder: etcd.MemberName(c.Key, c.ID), term: 5, leaderless: 2}
	d := server.serve(t)
	_, err := d.Acquire(t.Context(), driver.Request{Claim: c})
	require.NoError(t, err)
	require.Empty(t, renewAll(t.Context(), d, c))
}
