package etcd_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker"
)

// oldMembers lists, by key, the member and its value that layout 1 of docs/versioning.md stores in etcd: the owner worker
// holds the lock "k", and two of two permits of "p". Each member has a lease.
var oldMembers = map[string][2]string{
	"k": {"locker/k\x00\x010f0e0d0c-1111-4222-8333-444455556666:1", "worker"},
	"p": {"locker/p\x00\x010f0e0d0c-1111-4222-8333-444455556666:2", "\xff2 2 worker"},
}

// TestOldLayoutIsRespected: members that layout 1 stored keep out this version until their leases end, Inspect reports
// them, and the next tokens are greater.
func TestOldLayoutIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	admin := newClient(t, s)
	const base = int64(1_900_000_000_000_000) // ahead of the clock: only the key locker/tokens makes greater tokens
	_, err := admin.Put(ctx, "locker/tokens", fmt.Sprint(base))
	require.NoError(t, err)
	leases := map[string]clientv3.LeaseID{}
	for key, member := range oldMembers {
		leases[key] = putMember(t, admin, member[0], member[1])
	}
	l := newLocker(t, newClient(t, s))
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	tries := []func() (*locker.Lease, error){
		func() (*locker.Lease, error) { return l.TryLock(ctx, "k") },
		func() (*locker.Lease, error) { return sem.TryAcquire(ctx) },
		func() (*locker.Lease, error) { return l.TryLock(ctx, "p") },
	}
	for _, try := range tries {
		_, err = try()
		require.ErrorIs(t, err, locker.ErrNotAcquired)
	}
	held, err := l.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []any{true, "0f0e0d0c-1111-4222-8333-444455556666:1", "worker"}, []any{held.Held, held.ID, held.Owner})
	require.Positive(t, held.Remaining)
	require.Greater(t, held.Token, base)
	h, err := l.Inspect(ctx, "p")
	require.NoError(t, err)
	require.Equal(t, []any{true, 2, 2}, []any{h.Held, h.Permits, h.Limit})
	owners := map[string]int{}
	for h, err := range l.Permits(ctx, "p") {
		require.NoError(t, err)
		owners[h.Owner] = h.Permits
	}
	require.Equal(t, map[string]int{"worker": 2}, owners)

	for _, lease := range leases { // as its end would
		_, err := admin.Revoke(ctx, lease)
		require.NoError(t, err)
	}
	for _, try := range tries {
		lease, err := try()
		require.NoError(t, err)
		require.Greater(t, lease.Token(), held.Token)
		require.NoError(t, lease.Unlock(ctx))
	}
}

// putMember puts what an older version would put: a member that ends with a lease of a minute.
func putMember(t *testing.T, admin *clientv3.Client, name, value string) clientv3.LeaseID {
	t.Helper()
	lease, err := admin.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = admin.Put(t.Context(), name, value, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	return lease.ID
}

// TestOldWaiterIsNext: a member of layout 1 that waits is the holder after the release of this version, and keeps it out
// until the member's lease ends.
func TestOldWaiterIsNext(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	admin, l := newClient(t, s), newLocker(t, newClient(t, s))
	lease, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	old := putMember(t, admin, oldMembers["k"][0], oldMembers["k"][1])
	held, err := l.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []string{"worker"}, held.Queue)
	require.NoError(t, lease.Unlock(ctx))

	held, err = l.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []any{"0f0e0d0c-1111-4222-8333-444455556666:1", "worker"}, []any{held.ID, held.Owner})
	require.Greater(t, held.Token, lease.Token())
	_, err = l.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	_, err = admin.Revoke(ctx, old) // as its end would
	require.NoError(t, err)
	lease, err = l.TryLock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, lease.Token(), held.Token)
	require.NoError(t, lease.Unlock(ctx))
}

// TestOldBidIsRespected: a member of layout 1 that waits for two permits keeps a free permit from this version, and has
// both permits after the release of this version.
func TestOldBidIsRespected(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	admin, l := newClient(t, s), newLocker(t, newClient(t, s))
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	lease, err := sem.Acquire(ctx)
	require.NoError(t, err)
	other, err := sem.TryAcquire(ctx)
	require.NoError(t, err, "without the member a permit is free")
	require.NoError(t, other.Unlock(ctx))

	old := putMember(t, admin, oldMembers["p"][0], oldMembers["p"][1])
	_, err = sem.TryAcquire(ctx)
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, lease.Unlock(ctx))
	owners := map[string]int{}
	for h, err := range l.Permits(ctx, "p") {
		require.NoError(t, err)
		owners[h.Owner] = h.Permits
	}
	require.Equal(t, map[string]int{"worker": 2}, owners)
	_, err = admin.Revoke(ctx, old) // as its end would
	require.NoError(t, err)
	lease, err = sem.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
}

// TestLayoutIsKept: for the same lock and permits this version puts the members of oldMembers, each with a lease, and the key
// locker/tokens. Only ids differ.
func TestLayoutIsKept(t *testing.T) {
	t.Parallel()
	s, worker := newServer(t), locker.ContextWithOwner(t.Context(), "worker")
	l := newLocker(t, newClient(t, s))
	sem, err := locker.NewSemaphore(l, "p", 2)
	require.NoError(t, err)
	_, err = l.TryLock(worker, "k")
	require.NoError(t, err)
	_, err = sem.AcquireN(worker, 2)
	require.NoError(t, err)

	id := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`)
	want, got := map[string]string{}, map[string]string{}
	for _, member := range oldMembers {
		want[id.ReplaceAllString(member[0], "ID")] = member[1]
	}
	all, err := newClient(t, s).Get(t.Context(), "locker/", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range all.Kvs {
		if string(kv.Key) == "locker/tokens" {
			require.Regexp(t, `^\d{16}$`, string(kv.Value))
			require.Zero(t, kv.Lease)
			continue
		}
		require.NotZero(t, kv.Lease, "%q", kv.Key)
		got[id.ReplaceAllString(string(kv.Key), "ID")] = string(kv.Value)
	}
	require.Equal(t, want, got)
	require.Len(t, all.Kvs, len(want)+1)
}
