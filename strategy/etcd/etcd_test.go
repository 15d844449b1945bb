package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

func newLocker(t *testing.T, client *clientv3.Client, opts ...locker.Option) *locker.Client {
	t.Helper()
	l, err := etcd.New(client, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestNewRefuses(t *testing.T) {
	_, err := etcd.New(nil)
	require.ErrorIs(t, err, locker.ErrInvalid)
	_, err = etcd.New(clientv3.NewCtxClient(t.Context()))
	require.ErrorIs(t, err, locker.ErrInvalid)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	_, err = etcd.New(client, locker.WithDriverOption(1))
	require.ErrorIs(t, err, locker.ErrInvalid)
}

// Pairs of Lock and Unlock share a lease, which ends when nobody wants it any more.
func TestLeaseIsReused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, l := newClient(t, s), newLocker(t, newClient(t, s))
	for i := range 50 {
		lease, err := l.Lock(t.Context(), fmt.Sprint("key ", i))
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	leases := func() int {
		res, err := admin.Leases(t.Context())
		require.NoError(t, err)
		return len(res.Leases)
	}
	require.LessOrEqual(t, leases(), 2) // a second is over, on a slow machine
	require.Eventually(t, func() bool { return leases() == 0 }, 30*time.Second, 50*time.Millisecond)

	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, 1, leases())
	require.NoError(t, lease.Unlock(t.Context()))
	require.Zero(t, leases(), "a release after Close leaves its lease behind")
}

// A claim that was deleted by somebody else gives its lease to no other claim, as the other one may revoke it.
func TestLeaseOfABrokenLockIsNotReused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, l, other := newClient(t, s), newLocker(t, newClient(t, s)), newLocker(t, newClient(t, s))
	lease, err := l.Lock(t.Context(), "k", locker.WithoutRenewal())
	require.NoError(t, err)
	before, err := admin.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, before.Leases, 1)
	h, err := other.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, other.ForceUnlock(t.Context(), h))
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
	next, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	res, err := admin.Get(t.Context(), "locker/k\x00", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, res.Kvs, 1)
	require.NotEqual(t, int64(before.Leases[0].ID), res.Kvs[0].Lease)
	require.NoError(t, next.Unlock(t.Context()))
}

// A role of the range of a prefix, and of the key that tokens count from, is enough, to list the locks as well.
func TestRoleOfAPrefix(t *testing.T) {
	t.Parallel()
	s, err := members.Take()
	require.NoError(t, err)
	t.Cleanup(func() { members.Put(s, true) })
	admin, ctx := newClient(t, s), t.Context()
	for _, user := range []string{"root", "app"} {
		_, err = admin.RoleAdd(ctx, user)
		require.NoError(t, err)
		_, err = admin.UserAdd(ctx, user, "secret")
		require.NoError(t, err)
		_, err = admin.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	for from, to := range map[string]string{"locker/app:": clientv3.GetPrefixRangeEnd("locker/app:"), "locker/tokens": ""} {
		_, err = admin.RoleGrantPermission(ctx, "app", from, to, clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
	}
	_, err = newLocker(t, admin, locker.WithPrefix("other:")).Lock(ctx, "k")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "app", Password: "secret", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	l, second := newLocker(t, client, locker.WithPrefix("app:")), newLocker(t, client, locker.WithPrefix("app:"))
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		next, err := second.Lock(ctx, "k")
		if err == nil {
			err = next.Unlock(ctx)
		}
		granted <- err
	}()
	require.NoError(t, lease.Renew(ctx))
	_, err = l.Inspect(ctx, "k")
	require.NoError(t, err)
	var keys []string
	for h, err := range l.Holders(ctx, "*") {
		require.NoError(t, err)
		keys = append(keys, h.Key)
	}
	require.Equal(t, []string{"k"}, keys)
	require.NoError(t, lease.Unlock(ctx))
	require.NoError(t, <-granted)

	foreign := newLocker(t, client, locker.WithPrefix("other:"))
	_, err = foreign.Lock(ctx, "k") // permanent: it does not wait
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "permission denied")
}

// A waiter is woken, and renewals go on, after the history was compacted and the store defragmented.
func TestCompaction(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, l, other := newClient(t, s), newLocker(t, newClient(t, s)), newLocker(t, newClient(t, s))
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		next, err := other.Lock(t.Context(), "k")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		granted <- err
	}()
	require.Eventually(t, func() bool {
		h, err := l.Inspect(t.Context(), "k")
		return err == nil && h.Waiting == 1
	}, 30*time.Second, 10*time.Millisecond)
	res, err := admin.Put(t.Context(), "x", "")
	require.NoError(t, err)
	_, err = admin.Compact(t.Context(), res.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = admin.Defragment(t.Context(), s.Endpoint())
	require.NoError(t, err)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-granted)
}

// A value at the key that tokens count from is not ours: a person has to look.
func TestTokensKeyOfAnother(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin, l := newClient(t, s), newLocker(t, newClient(t, s))
	_, err := admin.Put(t.Context(), "locker/tokens", "something")
	require.NoError(t, err)
	_, err = l.Lock(t.Context(), "k")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, `the key locker/tokens has the value "something"`)
	_, err = admin.Delete(t.Context(), "locker/tokens")
	require.NoError(t, err)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.Less(t, time.Since(time.UnixMicro(lease.Token())).Abs(), time.Minute)
	require.NoError(t, lease.Unlock(t.Context()))
}

// No server listens: the command was not sent.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix:" + t.TempDir() + "/nobody"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	d := etcd.NewDriver(client)
	defer d.Close()
	err = d.Release(t.Context(), driver.Claim{Key: "k", ID: "id"})
	var e *driver.StoreError
	require.ErrorAs(t, err, &e)
	require.True(t, e.NotApplied, "%v", err)
	require.False(t, e.Permanent, "%v", err)
}

func TestErrorKinds(t *testing.T) {
	for _, c := range []struct {
		err                   error
		permanent, notApplied bool
	}{
		{rpctypes.ErrGRPCPermissionDenied, true, true},
		{rpctypes.ErrGRPCUserEmpty, true, true},
		{rpctypes.ErrGRPCAuthFailed, true, true},
		{rpctypes.ErrGRPCNoSpace, true, true},
		{rpctypes.ErrGRPCCorrupt, true, false},
		{rpctypes.ErrGRPCRequestTooManyRequests, false, true},
		{rpctypes.ErrGRPCNoLeader, false, true},
		{rpctypes.ErrGRPCLeaseNotFound, false, true},
		{rpctypes.ErrGRPCLeaderChanged, false, false},
		{rpctypes.ErrGRPCTimeout, false, false},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, false, false},
		{rpctypes.ErrGRPCUnhealthy, false, false},
		{context.DeadlineExceeded, false, false},
	} {
		for _, err := range []error{c.err, rpctypes.Error(c.err)} {
			got := etcd.StoreError(err)
			require.Equal(t, c.permanent, driver.IsPermanent(got), "permanent: %v", err)
			require.Equal(t, c.notApplied, !driver.MaybeApplied(got), "not applied: %v", err)
		}
	}
}

func TestKeysAreApart(t *testing.T) {
	keys := []string{"k", "k\x00", "k\x00\x01", "k\x00\x01id", "k\x00\x02", "\x00", "\x00\x00\x01", "tokens", "k/", "ключ", "{k}"}
	for _, key := range keys {
		for _, id := range []string{"id", "\x00\x01", "?a\x00\x01b"} {
			name := etcd.MemberName(key, id)
			gotKey, gotID, ok := etcd.MemberOf(name)
			require.True(t, ok)
			require.Equal(t, []string{key, id}, []string{gotKey, gotID})
			for _, other := range keys {
				start, end := etcd.RangeOf(other)
				require.Equal(t, key == other, start <= name && name < end, "%q in the range of %q", name, other)
			}
		}
	}
	_, _, ok := etcd.MemberOf("locker/tokens")
	require.False(t, ok)
}
