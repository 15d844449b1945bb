package etcd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/strategy/etcd"
	"github.com/distlock/locker/strategy/etcd/internal/members"
)

func semaphore(t *testing.T, s *members.Server, permits int) (*locker.Client, *locker.Semaphore) {
	t.Helper()
	l := newLocker(t, newClient(t, s))
	sem, err := locker.NewSemaphore(l, "k", permits)
	require.NoError(t, err)
	return l, sem
}

// Lockers that wait are served in the order in which they came, whatever number of permits they wait for.
func TestSemaphoreIsFair(t *testing.T) {
	t.Parallel()
	const limit = 4
	s := newServer(t)
	_, first := semaphore(t, s, limit)
	var held []*locker.Lease
	for range limit {
		lease, err := first.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, lease)
	}
	type served struct {
		i     int
		lease *locker.Lease
		err   error
	}
	order := make(chan served, 10)
	weights := []int{3, 2, 4, 2, 3} // no neighbours are inside together
	for i, n := range weights {
		l, sem := semaphore(t, s, limit)
		go func() {
			lease, err := sem.AcquireN(t.Context(), n)
			order <- served{i, lease, err}
		}()
		require.Eventually(t, func() bool {
			h, err := l.Inspect(t.Context(), "k")
			return err == nil && h.Waiting == i+1
		}, 20*time.Second, time.Millisecond)
	}
	for _, lease := range held { // two fit before the first does
		_, err := first.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrNotAcquired)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	for want := range weights {
		s := <-order
		require.NoError(t, s.err)
		require.Equal(t, want, s.i)
		require.Empty(t, order, "no other is inside")
		require.NoError(t, s.lease.Unlock(context.WithoutCancel(t.Context())))
	}
}

// A free permit costs a transaction, or two if others are out; so does its release.
func TestPermitsAreMembers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := newClient(t, s)
	l, sem := semaphore(t, s, 3)
	one, err := sem.Acquire(locker.ContextWithOwner(t.Context(), "ann lee"))
	require.NoError(t, err)
	two, err := sem.AcquireN(t.Context(), 2)
	require.NoError(t, err)
	require.Greater(t, two.Token(), one.Token())
	res, err := admin.Get(t.Context(), "locker/k\x00", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	require.Len(t, res.Kvs, 2)
	require.Equal(t, "\xff1 3 ann lee", string(res.Kvs[0].Value))
	require.Equal(t, "\xff2 3 ", string(res.Kvs[1].Value))

	h, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []any{true, 3, 3, "", "etcd"}, []any{h.Held, h.Permits, h.Limit, h.ID, h.Strategy})
	require.ErrorIs(t, l.ForceUnlock(t.Context(), h), locker.ErrConflict)
	got := map[string]int{}
	for h, err := range l.Permits(t.Context(), "k") {
		require.NoError(t, err)
		require.Positive(t, h.Remaining)
		got[h.Owner] = h.Permits
		if h.Owner == "ann lee" {
			require.NoError(t, l.ForceUnlock(t.Context(), h))
			require.ErrorIs(t, l.ForceUnlock(t.Context(), h), locker.ErrNotHeld)
		}
	}
	require.Equal(t, map[string]int{"ann lee": 1, two.Owner(): 2}, got)
	require.ErrorIs(t, one.Unlock(t.Context()), locker.ErrLost)
	free, err := sem.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, free)
	require.NoError(t, two.Unlock(t.Context()))
}

// A value that looks like permits, and is none, is another program's lock.
func TestForeignPermits(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	admin := newClient(t, s)
	for _, value := range []string{"", "1 3 ann", "\xff", "\xff1", "\xff1 3", "\xffx 3 ", "\xff4 3 ", "\xff0 3 ", "\xff1 9999999999 "} {
		name := etcd.MemberName("k", "application")
		_, err := admin.Put(t.Context(), name, value)
		require.NoError(t, err)
		d := etcd.NewDriver(newClient(t, s))
		c := driver.Claim{Key: "k", ID: strings.Repeat("0", 8) + "-0000-4000-8000-000000000000:1", TTL: time.Minute, Permits: 1, Limit: 3}
		c.Owner = c.ID
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
		require.NoError(t, err)
		require.False(t, a.Granted, "%q", value)
		require.Zero(t, a.Free)
		_, _, err = d.(driver.PermitKeeper).Permits(t.Context(), "k")
		require.ErrorIs(t, err, driver.ErrConflict)
		require.NoError(t, d.Close())
	}
}

// Processes that want a permit at once get no more than there are, and who is refused leaves nothing behind.
func TestPermitsAtOnce(t *testing.T) {
	t.Parallel()
	const limit, processes = 3, 6
	s := newServer(t)
	got := make(chan *locker.Lease, processes)
	for range processes {
		_, sem := semaphore(t, s, limit)
		go func() {
			lease, err := sem.TryAcquire(t.Context())
			if err != nil && !errors.Is(err, locker.ErrNotAcquired) {
				t.Error(err)
			}
			got <- lease
		}()
	}
	var held []*locker.Lease
	for range processes {
		if lease := <-got; lease != nil {
			held = append(held, lease)
		}
	}
	require.Len(t, held, limit)
	for _, lease := range held {
		require.NoError(t, lease.Unlock(t.Context()))
	}
	res, err := newClient(t, s).Get(t.Context(), "locker/k\x00", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, res.Kvs)
}

// A caller that gives up ends its bid with a Release, in the background. When that arrives late, another caller may
// have been granted what was kept free: it keeps that.
func TestLateEndOfABid(t *testing.T) {
	t.Parallel()
	d := etcd.NewDriver(newClient(t, newServer(t)))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	ids := 0
	newID := func() string {
		ids++
		return fmt.Sprintf("0b0f1c2e-3c4d-4e5f-8a9b-0c1d2e3f4a5b:%d", ids)
	}
	_, err := d.(driver.Configurer).Configure(driver.Config{Logger: slog.New(slog.DiscardHandler), NewID: newID})
	require.NoError(t, err)
	claim := func() driver.Claim {
		id := newID()
		return driver.Claim{Key: "k", ID: id, Owner: id, TTL: 10 * time.Second, Permits: 1, Limit: 1}
	}
	ask := func(c driver.Claim) driver.Answer {
		a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Waits: true})
		require.NoError(t, err)
		return a
	}
	holder, first, second := claim(), claim(), claim()
	require.True(t, ask(holder).Granted)
	require.True(t, ask(first).Bids)
	require.NoError(t, d.Release(t.Context(), holder))
	a := ask(second)
	require.True(t, a.Granted)
	second.ID = cmp.Or(a.Claim, second.ID)
	require.ErrorIs(t, d.Release(t.Context(), first), driver.ErrLost)
	require.NoError(t, d.Release(t.Context(), second))
}

// A lock that waits behind permits names no limit: what is shown of the permits stays as it was.
func TestLockBehindPermits(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	l, sem := semaphore(t, s, 3)
	held, err := sem.AcquireN(ctx, 2)
	require.NoError(t, err)
	other := newLocker(t, newClient(t, s))
	locked := make(chan error, 1)
	go func() {
		lease, err := other.Lock(ctx, "k")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		locked <- err
	}()
	var h locker.Holder
	require.Eventually(t, func() bool {
		h, err = l.Inspect(ctx, "k")
		return err == nil && h.Waiting == 1
	}, 20*time.Second, time.Millisecond)
	require.Equal(t, []any{true, 2, 3, ""}, []any{h.Held, h.Permits, h.Limit, h.ID})
	require.ErrorContains(t, l.ForceUnlock(ctx, h), "permits")

	d := etcd.NewDriver(newClient(t, s))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	n, limit, err := d.(driver.PermitKeeper).Permits(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, []int{n, limit})
	a, err := d.Acquire(ctx, driver.Request{Claim: driver.Claim{Key: "k", ID: "id", Owner: "id", TTL: time.Minute, Permits: 1, Limit: 5}})
	require.NoError(t, err)
	require.False(t, a.Granted)
	require.Equal(t, 3, a.Limit)
	require.NoError(t, held.Unlock(ctx))
	require.NoError(t, <-locked)
}

// The member of a waiter ends with its short lease when its process stands still, or with the store. The next look puts it into
// line again, and the waiter is woken there.
func TestWokenInTheNextPlace(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	admin, holding, waiting := newClient(t, s), etcd.NewDriver(newClient(t, s)), etcd.NewDriver(newClient(t, s))
	for _, d := range []driver.Driver{holding, waiting} {
		t.Cleanup(func() { require.NoError(t, d.Close()) })
	}
	ids := 0
	newID := func() string {
		ids++
		return fmt.Sprintf("0b0f1c2e-3c4d-4e5f-8a9b-0c1d2e3f4a5b:%d", ids)
	}
	_, err := waiting.(driver.Configurer).Configure(driver.Config{Logger: slog.New(slog.DiscardHandler), NewID: newID})
	require.NoError(t, err)
	claim := func() driver.Claim {
		id := newID()
		return driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Minute, Permits: 1, Limit: 1}
	}
	held := claim()
	a, err := holding.Acquire(ctx, driver.Request{Claim: held})
	require.NoError(t, err)
	require.True(t, a.Granted)
	w, err := waiting.(driver.Notifier).Watch(ctx, "k")
	require.NoError(t, err)
	defer w.Close()
	inLine := func() (waits string) {
		t.Helper()
		a, err := waiting.Acquire(ctx, driver.Request{Claim: claim(), Wait: true, Waits: true})
		require.NoError(t, err)
		require.False(t, a.Granted)
		res, err := admin.Get(ctx, "locker/k\x00", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(t, err)
		require.Len(t, res.Kvs, 2)
		return string(res.Kvs[1].Key)
	}
	_, err = admin.Delete(ctx, inLine())
	require.NoError(t, err)
	inLine()
	require.NoError(t, holding.Release(ctx, held))
	select {
	case <-w.C():
	case <-time.After(20 * time.Second):
		require.Fail(t, "the waiter is not woken")
	}
}
