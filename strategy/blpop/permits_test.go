package blpop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	turnsOfK  = redisconn.AuxKey("locker:turns:", "k")
	placesOfK = redisconn.AuxKey("locker:places:", "k")
)

// process is one that wants permits of "k", as the scripts see it.
type process struct {
	*queueDriver
	t     *testing.T
	rdb   *redis.Client
	n     int       // tells processes apart
	came  time.Time // its caller
	asked int

	count, limit int
	claim        driver.Claim // of the last attempt
	waits, holds bool
}

// newProcess makes the nth to come. Those that come one after another are a minute apart.
func newProcess(t *testing.T, d *queueDriver, rdb *redis.Client, n int) *process {
	t.Helper()
	return &process{queueDriver: d, t: t, rdb: rdb, n: n, came: time.Now().Add(time.Duration(n-1000) * time.Minute)}
}

// asks makes an attempt, and reports whether it was granted.
func (p *process) asks() bool { return p.answer(true).Granted }

func (p *process) answer(waits bool) driver.Answer {
	p.t.Helper()
	heardNow(p.t, p.rdb)
	p.asked++
	id := fmt.Sprintf("%08x-0000-8000-8000-000000000000:%d", p.n, p.asked)
	p.claim = driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Hour, Permits: p.count, Limit: p.limit}
	req := driver.Request{Claim: p.claim, Fencing: true, Waits: waits}
	if waits {
		req.Waited = time.Since(p.came)
	}
	a, err := p.AcquireWith(p.t.Context(), req, p.inboxes.name("k"), 1)
	require.NoError(p.t, err)
	if p.waits, p.holds = waits && !a.Granted, a.Granted; a.Granted {
		p.claim.Token = a.Token
	}
	require.Equal(p.t, p.waits, a.Bids)
	return a
}

// gives gives back what the process has, or gives up.
func (p *process) gives() {
	p.t.Helper()
	heardNow(p.t, p.rdb)
	err := p.Release(p.t.Context(), p.claim)
	if p.holds {
		require.NoError(p.t, err)
	} else {
		require.ErrorIs(p.t, err, locker.ErrLost)
	}
	p.waits, p.holds = false, false
}

// told reports whether the process was told to ask, since it was asked last.
func (p *process) told() bool {
	p.t.Helper()
	list, err := p.rdb.LRange(p.t.Context(), p.inboxes.name("k"), 0, -1).Result()
	require.NoError(p.t, err)
	require.NoError(p.t, p.rdb.Del(p.t.Context(), p.inboxes.name("k")).Err())
	if len(list) > 0 {
		require.Equal(p.t, p.claim.ID, list[0])
	}
	return len(list) > 0
}

// heardNow lets all that wait be alive, however slow the machine is.
func heardNow(t *testing.T, rdb *redis.Client) {
	t.Helper()
	silentFor(t, rdb, 0)
}

// silentFor lets all that wait have been silent for so long.
func silentFor(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	for who, place := range rdb.HGetAll(t.Context(), placesOfK).Val() {
		words := strings.SplitN(place, " ", 6)
		require.Len(t, words, 6)
		words[3] = fmt.Sprint(now.Add(-d).UnixMilli())
		require.NoError(t, rdb.HSet(t.Context(), placesOfK, who, strings.Join(words, " ")).Err())
	}
	if bid := strings.Fields(rdb.HGet(t.Context(), "k", ">").Val()); len(bid) == 4 {
		bid[3] = fmt.Sprint(now.Add(-d).UnixMilli())
		require.NoError(t, rdb.HSet(t.Context(), "k", ">", strings.Join(bid, " ")).Err())
	}
}

// fits is the rule: those that came before could have what they wait for, and then p what it asks for.
func fits(p *process, all []*process) bool {
	out, wanted := 0, 0
	for _, o := range all {
		if o.holds {
			out += o.count
		}
	}
	for _, o := range all[:slices.Index(all, p)] {
		if o.waits {
			if wanted += o.count; out+wanted > o.limit {
				return false
			}
		}
	}
	return out+wanted+p.count <= p.limit
}

// The caller that came first is served first, for any number of permits, and in any order in which the processes ask, give back
// and give up.
func TestPermitsInOrder(t *testing.T) {
	t.Parallel()
	const processes, steps = 8, 1500
	rdb := redistest.Start(t).Client(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var all []*process // in the order in which they came
	d := open(t, rdb)
	come := func(n int) *process {
		p := newProcess(t, d, rdb, n)
		p.count, p.limit = 1+random.IntN(4), 4+random.IntN(3)
		return p
	}
	next := 0
	for ; next < processes; next++ {
		all = append(all, come(next))
	}
	granted := 0
	for range steps {
		i := random.IntN(len(all))
		switch p := all[i]; {
		case p.holds, p.waits && random.IntN(8) == 0:
			p.gives()
			all = append(slices.Delete(all, i, i+1), come(next)) // another one comes
			next++
		default:
			want := fits(p, all)
			require.Equal(t, want, p.asks(), "%d of %d to one of %s", p.count, p.limit, lineOf(all))
			if want {
				granted++
			}
		}
	}
	t.Logf("%d grants", granted)
	require.Greater(t, granted, steps/20)
}

func lineOf(all []*process) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "[%d of %d, holds %v, waits %v] ", p.count, p.limit, p.holds, p.waits)
	}
	return b.String()
}

func wanting(t *testing.T, rdb *redis.Client, n, count, limit int) *process {
	t.Helper()
	p := newProcess(t, open(t, rdb), rdb, n)
	p.count, p.limit = count, limit
	return p
}

// A release tells those that fit, and no others; who gives up tells those that it kept out.
func TestReleaseTellsThoseThatFit(t *testing.T) {
	rdb := start(t)
	const limit = 4
	holders := []*process{wanting(t, rdb, 0, 1, limit), wanting(t, rdb, 1, 3, limit)}
	for _, h := range holders {
		require.True(t, h.asks())
	}
	big, one, two := wanting(t, rdb, 2, 2, limit), wanting(t, rdb, 3, 1, limit), wanting(t, rdb, 4, 2, limit)
	for _, p := range []*process{two, big, one} { // they ask in another order than they came
		require.False(t, p.asks())
	}
	told := func() []bool { return []bool{big.told(), one.told(), two.told()} }
	holders[0].gives()
	require.Equal(t, []bool{false, false, false}, told(), "one is free, and the first waits for two")
	require.False(t, one.asks())
	holders[1].gives()
	require.Equal(t, []bool{true, true, false}, told())
	require.False(t, two.asks())
	require.True(t, one.asks(), "the first fits beside it")
	require.True(t, big.asks())
	require.False(t, two.asks())
	another := wanting(t, rdb, 5, 1, limit)
	require.False(t, another.answer(false).Granted, "one that does not wait comes behind those that do")
	require.False(t, another.asks())
	two.gives() // it gives up
	require.True(t, another.told())
	require.True(t, another.asks())
	require.Zero(t, rdb.Exists(t.Context(), turnsOfK, placesOfK).Val())
}

// One that is silent is dead: those behind it are let in. If it was not, it has its turn as before.
func TestSilentOnesLoseTheirPlace(t *testing.T) {
	rdb := start(t)
	holder := wanting(t, rdb, 0, 1, 2)
	require.True(t, holder.asks())
	big, one := wanting(t, rdb, 1, 2, 2), wanting(t, rdb, 2, 1, 2)
	require.False(t, big.asks())
	require.False(t, one.asks())
	silentFor(t, rdb, driver.BidTime)
	req := driver.Request{Claim: driver.Claim{Key: "k", ID: "00000009-0000-8000-8000-000000000000:1", TTL: time.Hour, Permits: 1, Limit: 2}}
	req.Owner = req.ID
	a, err := holder.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.True(t, a.Granted)
	require.False(t, one.asks())
	require.False(t, big.asks())
	require.NoError(t, holder.Release(t.Context(), req.Claim))
	require.False(t, one.asks(), "the other one came before it")
	holder.gives()
	require.True(t, big.asks())
}

// The next caller of a Locker does not take the turn of one that has given up, also if it asks before that is known.
func TestTurnIsTheCallersOwn(t *testing.T) {
	rdb := start(t)
	holder := wanting(t, rdb, 0, 1, 1)
	require.True(t, holder.asks())
	first, other, next := wanting(t, rdb, 1, 1, 1), wanting(t, rdb, 2, 1, 1), wanting(t, rdb, 3, 1, 1)
	require.False(t, first.asks())
	require.False(t, other.asks())
	next.n, next.asked = first.n, first.asked // of the same Locker
	require.False(t, next.asks())
	first.gives()
	holder.gives()
	require.False(t, next.asks(), "the other one came before it")
	require.True(t, other.asks())
	other.gives()
	require.True(t, next.asks())
}

// The clock of the server orders nobody: it jumps, and after their next look all are served as they came.
func TestTurnsAndAClockThatJumps(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.WithSettableClock())
	rdb := srv.Client(t)
	holder := wanting(t, rdb, 0, 1, 1)
	require.True(t, holder.asks())
	line := []*process{wanting(t, rdb, 1, 1, 1), wanting(t, rdb, 2, 1, 1), wanting(t, rdb, 3, 1, 1)}
	for _, ahead := range []time.Duration{0, -20 * time.Minute, 20 * time.Minute, 0} {
		srv.SetClock(t, ahead)
		for _, p := range slices.Backward(line) {
			require.False(t, p.asks())
		}
	}
	for _, p := range line {
		holder.gives()
		require.True(t, p.told())
		for _, o := range slices.Backward(line) {
			if o != p && !o.holds && o.n > p.n {
				require.False(t, o.asks())
			}
		}
		require.True(t, p.asks())
		holder = p
	}
}

// Lockers that wait are served in the order in which they came, whatever they wait for.
func TestSemaphoreIsFair(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	const limit = 4
	acquire := func() func(n int) (*locker.Lease, error) {
		l, err := New(srv.Client(t))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		s, err := locker.NewSemaphore(l, "k", limit)
		require.NoError(t, err)
		return func(n int) (*locker.Lease, error) { return s.AcquireN(t.Context(), n) }
	}
	holder, err := acquire()(limit)
	require.NoError(t, err)
	type served struct {
		i     int
		lease *locker.Lease
		err   error
	}
	order := make(chan served)
	weights := []int{3, 2, 4, 2, 3, 4, 3, 2} // no neighbours are inside together
	for i, n := range weights {
		a := acquire()
		go func() {
			lease, err := a(n)
			order <- served{i, lease, err}
		}()
		require.Eventually(t, func() bool { return rdb.ZCard(t.Context(), turnsOfK).Val() == int64(i)+1 }, 10*time.Second, time.Millisecond)
	}
	require.NoError(t, holder.Unlock(t.Context()))
	for want := range weights {
		s := <-order
		require.NoError(t, s.err)
		require.Equal(t, want, s.i)
		require.NoError(t, s.lease.Unlock(context.WithoutCancel(t.Context())))
	}
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), "k", turnsOfK, placesOfK).Val() == 0 }, 10*time.Second, time.Millisecond)
}
