package permitstest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// A claim counts once, however often and at whatever time its Acquire arrives.
func sentAgainCountOnce(t *test) {
	const times = 8
	s := t.k.Start(t.T)
	d, other := s.Driver(t.T, 2*times), s.Driver(t.T, 0) // d is refused nothing
	for round := range 20 {
		limit := []int{3, 99}[round%2] // without room for it twice, and with it
		c := claim(IDOf(round), time.Minute, 2, limit)
		var all sync.WaitGroup
		tokens := make([]int64, times)
		for i := range times {
			all.Go(func() {
				a, err := d.Acquire(t.Context(), driver.Request{Claim: c, Fencing: true})
				if err != nil || !a.Granted {
					t.Errorf("sent %d times at once, a request is refused: %v", times, err)
				}
				tokens[i] = a.Token
			})
		}
		all.Wait()
		for _, token := range tokens {
			require.Equal(t, tokens[0], token)
		}
		require.Equal(t, 2, out(t, d))
		require.False(t, take(t, other, claim(ofOther(round), time.Minute, limit-1, limit)).Granted)
		require.NoError(t, d.Release(t.Context(), c))
		require.ErrorIs(t, d.Release(t.Context(), c), driver.ErrLost)
		require.Zero(t, out(t, d))
	}
}

// Without tokens the permits are kept, too.
func withoutFencing(t *test) {
	d := t.k.Start(t.T).Driver(t.T, 0)
	take := func(c driver.Claim) bool {
		t.Helper()
		a := ask(t, d, driver.Request{Claim: c})
		require.Zero(t, a.Token)
		return a.Granted
	}
	one, two := claim(IDOf(1), time.Minute, 1, 2), claim(IDOf(2), time.Minute, 1, 2)
	for range 2 {
		require.True(t, take(one))
		require.True(t, take(one))
		require.True(t, take(two))
		require.False(t, take(claim(IDOf(3), time.Minute, 1, 2)))
		require.NoError(t, d.Release(t.Context(), one))
		require.NoError(t, d.Release(t.Context(), two))
		require.Zero(t, out(t, d))
	}
}

// A lock is refused while a permit is out, and granted at once behind the last one. So it is whichever claim is the last.
func lockComesBehindTheLast(t *test) {
	s := t.k.Start(t.T)
	d, other := s.Driver(t.T, 0), s.Driver(t.T, 0)
	for round := range 4 {
		lock := claim(ofOther(round), time.Minute, 0, 0)
		all := []driver.Claim{claim(IDOf(round), time.Minute, 3, 9), claim(IDOf(10+round/2), time.Minute, 2, 9)}
		for _, c := range all {
			require.True(t, take(t, d, c).Granted)
		}
		for _, c := range all {
			require.False(t, take(t, other, lock).Granted)
			require.NoError(t, d.Release(t.Context(), c))
		}
		require.True(t, take(t, other, lock).Granted)
		require.False(t, take(t, d, all[0]).Granted)
		require.NoError(t, other.Release(t.Context(), lock))
	}
}

// An attempt that waits for the head judges what is there after the wait: nothing from before it grants too much,
// or hides the claim's own permits. An attempt that has waited for too long is refused without a Remaining.
func afterAWait(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 16)
	require.True(t, take(t, d, claim(IDOf(1), time.Minute, 1, 3)).Granted)
	waited := 0
	for round := 0; waited < 5; round++ {
		end := s.Lock(t.T, `SELECT hash FROM `+t.k.Keys+` FOR UPDATE`)
		mine, other := claim(ofOther(round), time.Minute, 2, 3), claim(ofThird(round), time.Minute, 2, 3)
		granted, late, answered := make([]bool, 3), 0, make(chan driver.Answer, 3)
		var all sync.WaitGroup
		for i, c := range []driver.Claim{mine, mine, other} {
			all.Go(func() {
				a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: true})
				if err != nil {
					t.Error(err)
				}
				granted[i] = a.Granted
				answered <- a
			})
		}
		untilWaits(t, s, 3, answered)
		early := len(answered)
		end()
		all.Wait()
		for range granted {
			if a := <-answered; !a.Granted && a.Remaining == 0 {
				late++
			}
		}
		want := 1
		for _, c := range []driver.Claim{mine, other} {
			if err := d.Release(ctx, c); err == nil {
				want += 2
			} else {
				require.ErrorIs(t, err, driver.ErrLost)
			}
		}
		require.LessOrEqual(t, want, 3, "only two permits were free")
		require.Equal(t, 1, out(t, d))
		require.False(t, granted[2] && (granted[0] || granted[1]), "both claims were granted two")
		if early+late == 0 {
			waited++
			require.True(t, granted[2] || granted[0], "two permits were free")
			require.Equal(t, granted[0], granted[1], "one claim is granted and refused")
		}
	}
}

// A claim that seemed to have ended, and was renewed before it could be forgotten, keeps its permits.
func renewedIsNotForgotten(t *test) {
	s, ctx := t.k.Start(t.T), t.Context()
	d := s.Driver(t.T, 16)
	dead, late := claim(IDOf(1), time.Minute, 1, 3), claim(IDOf(2), time.Minute, 1, 3)
	require.True(t, take(t, d, dead).Granted)
	require.True(t, take(t, d, late).Granted)
	admin(t, s, `UPDATE `+t.k.Claims+` SET expires = `+t.k.After(-time.Millisecond))
	// By an index, so that no other row is locked.
	end := s.Lock(t.T, `UPDATE `+t.k.Claims+` SET expires = `+t.k.After(time.Minute)+` WHERE `+t.k.Is(late.ID))
	done := make(chan driver.Answer, 1)
	go func() {
		a, err := d.Acquire(ctx, driver.Request{Claim: claim(ofOther(1), time.Minute, 3, 3), Fencing: true})
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	untilWaits(t, s, 1, done)
	end()
	require.False(t, (<-done).Granted, "one permit is out")
	require.Equal(t, 1, out(t, d))
	require.False(t, take(t, d, claim(ofOther(2), time.Minute, 3, 3)).Granted)
	require.True(t, take(t, d, claim(ofOther(3), time.Minute, 2, 3)).Granted)
	d.Renew(ctx, []driver.Claim{late}, func(_ int, err error) { require.NoError(t, err) })
	require.NoError(t, d.Release(ctx, late))
}

// Inspect shows how many are out, and Permits the claims; ForceUnlock takes those of one claim.
func inspect(t *test) {
	l := open(t, t.k.Start(t.T).Driver(t.T, 0), locker.WithPrefix("app:"))
	s, ctx := semaphore(t, l, 200), locker.ContextWithOwner(t.Context(), "ann lee")
	want := map[int64]int{}
	for i := range 130 {
		lease, err := s.AcquireN(ctx, 1+i%2)
		require.NoError(t, err)
		want[lease.Token()] = 1 + i%2
	}
	h, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, h.Held)
	require.Equal(t, []any{195, 200, "", t.k.Name}, []any{h.Permits, h.Limit, h.ID, h.Strategy})
	require.Positive(t, h.Remaining)
	require.ErrorIs(t, l.ForceUnlock(t.Context(), h), locker.ErrConflict)
	got := map[int64]int{}
	var one locker.Holder
	for h, err := range l.Permits(t.Context(), "k") {
		require.NoError(t, err)
		require.Equal(t, []any{"k", "ann lee", 200}, []any{h.Key, h.Owner, h.Limit})
		require.Positive(t, h.Remaining)
		got[h.Token], one = h.Permits, h
	}
	require.Equal(t, want, got)
	require.NoError(t, l.ForceUnlock(t.Context(), one))
	require.ErrorIs(t, l.ForceUnlock(t.Context(), one), locker.ErrNotHeld)
	free, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5+one.Permits, free)
}

// In a database from before permits their error names the missing table and what to do. Locks work as before.
func needTheirTable(t *test) {
	d, permits := t.k.Start(t.T).Weak(t.T)
	l := open(t, d)
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	sem := semaphore(t, l, 2)
	_, err = sem.Acquire(t.Context())
	require.ErrorIs(t, err, locker.ErrUnavailable)
	for _, word := range t.k.Missing {
		require.ErrorContains(t, err, word)
	}
	permits()
	lease, err = sem.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

// The table of permits has a name of its own, however long that of the keys is.
func longNames(t *test) {
	s := t.k.Start(t.T)
	for _, name := range t.k.Names {
		sem := semaphore(t, open(t, s.Driver(t.T, 0), t.k.WithTable(name)), 2)
		for range 2 {
			_, err := sem.Acquire(t.Context())
			require.NoError(t, err, name)
		}
		_, err := sem.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrNotAcquired, name)
	}
	n := 0
	require.NoError(t, s.Ask(t.Context(), &n, t.k.Count))
	require.Len(t, t.k.Names, n)
}
