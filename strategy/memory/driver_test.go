package memory

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

const ttl = time.Second

func request(key, id string) driver.Request {
	return driver.Request{
		Claim:   driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl},
		Fencing: true,
	}
}

func acquire(t *testing.T, d driver.Driver, key, id string) driver.Answer {
	t.Helper()
	a, err := d.Acquire(t.Context(), request(key, id))
	require.NoError(t, err)
	return a
}

func renew(t *testing.T, d driver.Driver, c driver.Claim) error {
	t.Helper()
	var got error
	answers := 0
	d.Renew(t.Context(), []driver.Claim{c}, func(_ int, err error) { got = err; answers++ })
	require.Equal(t, 1, answers)
	return got
}

func TestAcquireExcludes(t *testing.T) {
	s := NewStore()
	d, other := s.Driver(), s.Driver()
	first := acquire(t, d, "k", "a")
	require.True(t, first.Granted)
	require.InDelta(t, time.Now().UnixMicro(), first.Token, 1e6)

	refused := acquire(t, other, "k", "b")
	require.False(t, refused.Granted)
	require.False(t, refused.NoWakeUp)
	require.Positive(t, refused.Remaining)
	require.LessOrEqual(t, refused.Remaining, ttl)

	require.True(t, acquire(t, other, "another", "b").Granted)
}

func TestSameOwnerAnotherClaimIsExcluded(t *testing.T) {
	d := NewStore().Driver()
	for i, granted := range []bool{true, false} {
		req := request("k", fmt.Sprint(i))
		req.Owner = "shared"
		a, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, granted, a.Granted)
	}
}

func TestCommandsSentTwice(t *testing.T) {
	d := NewStore().Driver()
	c := request("k", "a").Claim
	first := acquire(t, d, "k", "a")
	again := acquire(t, d, "k", "a")
	require.True(t, again.Granted)
	require.Equal(t, first.Token, again.Token)
	require.LessOrEqual(t, again.Tokens, 1, "no token but the one that the first grant may have used")

	require.NoError(t, d.Release(t.Context(), c))
	require.ErrorIs(t, d.Release(t.Context(), c), locker.ErrLost)

	next := acquire(t, d, "k", "b")
	require.True(t, next.Granted)
	require.Greater(t, next.Token, first.Token)
	require.ErrorIs(t, d.Release(t.Context(), c), locker.ErrLost)
	require.ErrorIs(t, renew(t, d, c), locker.ErrLost)
	require.False(t, acquire(t, d, "k", "c").Granted, "a late release freed a successor's lock")
}

func TestNeverShortens(t *testing.T) {
	s := NewStore()
	d := s.Driver()
	acquire(t, d, "k", "a")

	short := request("k", "a")
	short.TTL = ttl / 10
	_, err := d.Acquire(t.Context(), short)
	require.NoError(t, err)
	require.NoError(t, renew(t, d, short.Claim))
	_, left, ok := s.Holder("k")
	require.True(t, ok)
	require.Greater(t, left, ttl/2)
}

func TestTokensGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the clock stands still
		d := NewStore().Driver()
		last := int64(0)
		for i := range 1000 {
			id := fmt.Sprint(i)
			a := acquire(t, d, "k", id)
			require.Greater(t, a.Token, last)
			last = a.Token
			require.NoError(t, d.Release(t.Context(), request("k", id).Claim))
		}

		req := request("k", "unfenced")
		req.Fencing = false
		a, err := d.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Zero(t, a.Token)
	})
}

func TestLeasesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		d := s.Driver()
		c := request("k", "a").Claim
		first := acquire(t, d, "k", "a")

		time.Sleep(ttl - 1) // on the bubble's clock: just before the end
		require.False(t, acquire(t, d, "k", "b").Granted)
		require.NoError(t, renew(t, d, c))
		time.Sleep(ttl - 1) // on the bubble's clock: just before the end
		require.Equal(t, time.Duration(1), acquire(t, d, "k", "b").Remaining)

		time.Sleep(time.Nanosecond) // on the bubble's clock: the end
		_, _, ok := s.Holder("k")
		require.False(t, ok)
		require.ErrorIs(t, renew(t, d, c), locker.ErrLost, "a renewal revived a lease")
		next := acquire(t, d, "k", "b")
		require.True(t, next.Granted)
		require.Greater(t, next.Token, first.Token)
		require.ErrorIs(t, d.Release(t.Context(), c), locker.ErrLost)
	})
}

func TestReleaseAfterTheLeaseRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		acquire(t, s.Driver(), "k", "a")
		time.Sleep(ttl) // on the bubble's clock: to the end
		require.ErrorIs(t, s.Driver().Release(t.Context(), request("k", "a").Claim), locker.ErrLost)
		require.Empty(t, s.t.Locks)
	})
}

func TestExpiredGrantsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		d := s.Driver()
		peak := 0
		for i := range 10_000 { // one key a millisecond, never released: 1000 live
			acquire(t, d, fmt.Sprint(i), "a")
			peak = max(peak, len(s.t.Locks))
			time.Sleep(time.Millisecond) // on the bubble's clock
		}
		require.LessOrEqual(t, peak, 4*int(ttl/time.Millisecond))

		time.Sleep(ttl) // on the bubble's clock: to the end
		require.Empty(t, s.Keys())
		require.Empty(t, s.t.Locks)
	})
}

func TestWatch(t *testing.T) {
	s := NewStore()
	d := s.Driver().(driver.Notifier)
	watch := func(key string) driver.Watch {
		w, err := d.Watch(t.Context(), key)
		require.NoError(t, err)
		return w
	}
	woken := func(w driver.Watch) bool {
		select {
		case <-w.C():
			return true
		default:
			return false
		}
	}
	one, two, other := watch("k"), watch("k"), watch("other")

	for name, c := range map[string]struct {
		free  func()
		woken bool
	}{
		"release": {func() { require.NoError(t, s.Driver().Release(t.Context(), request("k", "release").Claim)) }, true},
		"break":   {func() { s.Break("k") }, false},
		"flush":   {s.Flush, false},
	} {
		acquire(t, s.Driver(), "k", name)
		require.False(t, woken(one) || woken(two))
		c.free()
		require.Equal(t, c.woken, woken(one), name)
		require.Equal(t, c.woken, woken(two), name)
		require.False(t, woken(other))
	}

	one.Close()
	one.Close()
	s.Break("k")
	require.False(t, woken(one))
	two.Close()
	other.Close()
	require.Empty(t, s.t.Watches)
}

func TestLookingIn(t *testing.T) {
	s := NewStore()
	acquire(t, s.Driver(), "b", "bob")
	acquire(t, s.Driver(), "a", "ann")
	require.Equal(t, []string{"a", "b"}, s.Keys())
	owner, left, ok := s.Holder("b")
	require.True(t, ok)
	require.Equal(t, "bob", owner)
	require.Positive(t, left)

	require.True(t, s.Break("b"))
	require.False(t, s.Break("b"))
	_, _, ok = s.Holder("b")
	require.False(t, ok)
	s.Flush()
	require.Empty(t, s.Keys())
}

func TestDeadContext(t *testing.T) {
	s := NewStore()
	d := s.Driver()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := d.Acquire(ctx, request("k", "a"))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.Keys())
	var se *driver.StoreError
	require.ErrorAs(t, err, &se)
	require.True(t, se.NotApplied)

	require.ErrorIs(t, d.Release(ctx, request("k", "a").Claim), context.Canceled)
	_, err = d.(driver.Notifier).Watch(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	d.Renew(ctx, []driver.Claim{request("k", "a").Claim}, func(_ int, err error) {
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestManyGoroutines(t *testing.T) {
	s := NewStore()
	var inside, grants [2]int // written under the lock of their key only
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			d := s.Driver()
			for i := range 500 {
				k := i % 2
				req := request(fmt.Sprint("k", k), fmt.Sprint(g, "-", i))
				a, err := d.Acquire(t.Context(), req)
				if err != nil {
					t.Error(err)
				}
				if !a.Granted {
					continue
				}
				inside[k]++
				if inside[k] != 1 {
					t.Error("two inside")
				}
				grants[k]++
				inside[k]--
				if err := d.Release(t.Context(), req.Claim); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, grants[0]+grants[1])
	require.Empty(t, s.t.Locks)
}

func TestSignals(t *testing.T) {
	const a, b = "0194f2a4-58c1-8d7e-9b1a-5f3c2e1d0a9b", "0194f2a4-58c1-4d7e-9b1a-5f3c2e1d0a9c"
	s := NewStore()
	listen := func(locker string) driver.Listener {
		l, err := s.Driver().(driver.Signaller).Listen(t.Context(), locker)
		require.NoError(t, err)
		return l
	}
	send := func(claim string) driver.Signal {
		sent := driver.Signal{Kind: driver.SignalRequest, Key: "k", Claim: claim}
		require.NoError(t, s.Driver().(driver.Signaller).Signal(t.Context(), sent))
		return sent
	}
	send(a + ":1") // nobody listens
	one, other := listen(a), listen(b)
	sent := send(a + ":2")
	require.Empty(t, other.C())
	require.Equal(t, sent, <-one.C())
	for range 2 * driver.SignalBuffer { // too many block nobody
		send(b + ":1")
	}
	require.Len(t, other.C(), driver.SignalBuffer)
	one.Close()
	other.Close()
	send(a + ":3")
	require.Empty(t, one.C())
	require.Empty(t, s.listeners.all)
	require.ErrorIs(t, s.Driver().(driver.Signaller).Signal(t.Context(), driver.Signal{Claim: "x"}), driver.ErrInvalid)
}
