package strategy

import (
	"sync"
	"testing"

	"github.com/distlock/locker"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, url string) (locker.Locker, func()) {
	t.Helper()
	l, release, err := OpenURL(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(release)
	return l, release
}

func TestMemoryIsSharedByName(t *testing.T) {
	ctx := t.Context()
	a, _ := open(t, "memory://shop")
	b, _ := open(t, "memory://shop/?ttl=5s")
	other, _ := open(t, "memory://office")
	unnamed, _ := open(t, "memory://")
	c, release, err := Open(ctx, Config{Strategy: "memory"})
	require.NoError(t, err)
	t.Cleanup(release)

	lease, err := a.TryLock(ctx, "k")
	require.NoError(t, err)
	_, err = b.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	for _, l := range []locker.Locker{other, unnamed} {
		lease, err := l.TryLock(ctx, "k")
		require.NoError(t, err, "another name is another store")
		defer lease.Unlock(ctx)
	}
	_, err = c.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired, "a Config without a URL is for the unnamed store")
	require.NoError(t, lease.Unlock(ctx))
}

func storesLeft() int {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	return len(stores.byName)
}

func TestMemoryOutlivesItsLockersWhileHeld(t *testing.T) {
	ctx := t.Context()
	before := storesLeft()
	l, release := open(t, "memory://held")
	lease, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	release() // the section under the lease may still run

	l, release = open(t, "memory://held")
	_, err = l.TryLock(ctx, "k")
	require.ErrorIs(t, err, locker.ErrNotAcquired)
	require.NoError(t, lease.Unlock(ctx), "and says when it is done")
	next, err := l.TryLock(ctx, "k")
	require.NoError(t, err)
	require.Greater(t, next.Token(), lease.Token())
	require.NoError(t, next.Unlock(ctx))
	release()
	require.Equal(t, before, storesLeft(), "nothing is left of a store that nobody uses")

	_, _, err = OpenURL(ctx, "memory://held?max_hold=0s")
	require.Error(t, err)
	_, _, err = Open(ctx, Config{URL: "memory://held", Options: []locker.Option{locker.WithDriverOption(1)}})
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.Equal(t, before, storesLeft())
}

func TestMemoryOpenedByMany(t *testing.T) {
	before := storesLeft()
	var wg sync.WaitGroup
	inside := 0
	for range 16 {
		wg.Go(func() {
			for range 20 {
				l, release, err := OpenURL(t.Context(), "memory://many")
				if err != nil {
					t.Error(err)
					return
				}
				lease, err := l.Lock(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 { // the race detector looks, too
					t.Error("two are inside")
				}
				inside--
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, storesLeft())
}
