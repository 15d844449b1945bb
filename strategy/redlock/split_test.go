package redlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A free key goes to one of the contenders that try at the same time to get it: split votes
// end within the attempt.
func TestRacesForAFreeKeyHaveAWinner(t *testing.T) {
	races := 300
	switch {
	case testing.Short():
		races = 100
	case os.Getenv("LOCKER_CONFORMANCE") == "all":
		races = 1000
	}
	servers := startServers(t)
	var lockers []locker.Locker
	for i := range 10 {
		var rdbs []redis.UniversalClient
		for j := range servers {
			if i%2 == 1 { // they know the nodes in different orders
				j = len(servers) - 1 - j
			}
			rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: servers[j].Socket()})
			t.Cleanup(func() { _ = rdb.Close() })
			rdbs = append(rdbs, rdb)
		}
		l, err := New(rdbs, WithNodeTimeout(10*time.Second)) // the machine may be slow
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		unlock(t, lock(t, l, "warm-up"))
		lockers = append(lockers, l)
	}
	wrong := 0
	for r := range races {
		key := fmt.Sprint("k", r)
		var winners atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, l := range lockers[:3+rand.N(8)] {
			all.Go(func() {
				<-start
				lease, err := l.TryLock(t.Context(), key)
				switch {
				case err == nil:
					winners.Add(1)
					_ = lease // held until the race is over
				case !errors.Is(err, locker.ErrNotAcquired):
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if n := winners.Load(); n != 1 {
			wrong++
			t.Errorf("race %d has %d winners", r, n)
		}
	}
	t.Logf("%d of %d races had not one winner", wrong, races)
}

// Eval is how redsync cleans up after an attempt, and our release then.
func TestRedsyncCleansUpByOurRelease(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	h := d.newHold(request("k"))
	o := d.newOp(t.Context(), opAcquire, h)
	granted, other := conn{&o.parts[0]}, conn{&o.parts[1]}
	ok, err := granted.SetNX("", "", 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, h.req.ID, m.holder(t, 0, "k"))
	_, err = other.Eval(nil)
	require.Error(t, err, "nothing was granted there")
	freed, err := granted.Eval(nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, freed)
	require.Empty(t, m.holder(t, 0, "k"), "redsync's clean-up is sent")
	h.close()
	o.finish()

	renewal := d.newOp(t.Context(), opRenew, h)
	defer renewal.finish()
	_, err = conn{&renewal.parts[0]}.SetNX("", "", 0)
	require.Error(t, err, "redsync acquires in an attempt only")
}
