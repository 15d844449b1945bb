package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker/strategy/etcd/internal/members"
)

// newServer is a cluster of one for a test.
func newServer(t *testing.T) *members.Server {
	t.Helper()
	s, err := members.Take()
	require.NoError(t, err)
	t.Cleanup(func() { members.Put(s, false) })
	return s
}

func newClient(tb testing.TB, to ...*members.Server) *clientv3.Client {
	tb.Helper()
	client, err := members.Dial(to...)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
