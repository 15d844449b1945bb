package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// section is a grant as its holder saw it, on the one monotonic clock of this process.
type section struct {
	key      string
	token    int64
	from, to time.Duration // to: Unlock was called or the lease was lost, whichever was first
	lost     bool
}

const (
	chaosTTL = time.Second
	fastKeys = 8 // held for a moment, and fought for
	slowKeys = 8 // held for longer than the TTL
)

// TestConformanceWhileNodesFail: ten thousand grants to racing holders, two
// thousand unless everything is asked for, while nodes are killed and come back empty,
// or are paused. A minority at a time, and a node that lost its data stays away for
// longer than the TTL: within these limits no two holds of a key overlap, and tokens
// are in the order of the holds. No other test of the package runs beside these, which take all
// the processors.
func TestConformanceWhileNodesFail(t *testing.T) {
	chaos(t, 10_000, chaosTTL, 0, startServers(t), func(s *redistest.Server, pause func(time.Duration)) {
		s.Kill()
		pause(chaosTTL + chaosTTL/4 + rand.N(chaosTTL/4)) // what it knew of has expired
		s.Restart(t)
	}, pauseNode)
}

// TestConformanceWithoutClocks: with counters that are hours apart and ahead of every
// clock, and nothing lost, it is majorities that keep the tokens in order.
func TestConformanceWithoutClocks(t *testing.T) {
	servers := startServers(t)
	for i, s := range servers {
		rdb := s.Client(t)
		for k := range fastKeys + slowKeys {
			ahead := time.Now().Add(time.Hour * time.Duration(1+(i+k)%len(servers)))
			require.NoError(t, rdb.Set(t.Context(), redisdriver.FenceKey(chaosKey(k)), ahead.UnixMicro(), time.Hour).Err())
		}
	}
	chaos(t, 3000, chaosTTL, 0, servers, pauseNode, pauseNode)
}

// TestConformanceWhileClocksMove: clocks that are set ahead and back. That takes from the
// end of a lease what they are set ahead by, and so nothing from one that is renewed; and
// it is less than a node is away that loses its data.
func TestConformanceWhileClocksMove(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("clocks of servers can be set on Linux")
	}
	const ttl, step = 4 * time.Second, time.Second
	var servers []*redistest.Server
	for range 5 {
		servers = append(servers, redistest.Start(t, redistest.WithSettableClock()))
	}
	chaos(t, 10_000, ttl, step, servers, func(s *redistest.Server, pause func(time.Duration)) {
		s.Kill()
		pause(ttl + ttl/4)
		s.Restart(t)
	}, func(s *redistest.Server, pause func(time.Duration)) {
		s.SetClock(t, []time.Duration{step, -step}[rand.N(2)])
		pause(rand.N(step))
		s.SetClock(t, 0)
	})
}

func pauseNode(s *redistest.Server, pause func(time.Duration)) {
	s.Pause()
	pause(rand.N(2 * chaosTTL))
	s.Resume()
}

func chaosKey(k int) string { return fmt.Sprint("k", k) }

func startServers(t *testing.T) []*redistest.Server {
	t.Helper()
	var servers []*redistest.Server
	for range 5 {
		servers = append(servers, redistest.Start(t))
	}
	return servers
}

// chaos has holders race for so many grants in the face of troubles, each of which
// befalls one node at a time, and checks what they saw. The clocks of nodes may be ahead
// by as much as ahead.
func chaos(t *testing.T, grants int64, ttl, ahead time.Duration, servers []*redistest.Server, troubles ...func(*redistest.Server, func(time.Duration))) {
	t.Helper()
	const lockers, each = 4, 5 // Lockers and goroutines of each
	if testing.Short() || os.Getenv("LOCKER_CONFORMANCE") != "all" {
		grants /= 20
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	start := time.Now()
	var mu sync.Mutex
	var history []section
	var left atomic.Int64
	left.Store(grants)

	var holders sync.WaitGroup
	for range lockers {
		var rdbs []redis.UniversalClient
		for _, s := range servers {
			// By its socket: the port of a server that is down may go to another.
			rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
			t.Cleanup(func() { _ = rdb.Close() })
			rdbs = append(rdbs, rdb)
		}
		l, err := New(rdbs, locker.WithTTL(ttl), WithNodeTimeout(chaosTTL/8))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		for range each {
			holders.Go(func() {
				for left.Add(-1) >= 0 {
					s, err := enter(ctx, l, start, ttl, ahead)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					history = append(history, s)
					mu.Unlock()
				}
			})
		}
	}
	over := make(chan struct{})
	go func() {
		holders.Wait()
		close(over)
	}()
	n := makeTrouble(servers, over, troubles)
	<-over

	lost := 0
	for _, s := range history {
		if s.lost {
			lost++
		}
	}
	t.Logf("%d grants in %v, %d of them lost, %d troubles", len(history), time.Since(start), lost, n)
	require.Len(t, history, int(grants))
	for _, w := range checkSections(history) {
		t.Error(w)
	}
}

// enter is one Lock and Unlock: mostly a short one, some past the TTL and so renewed,
// some by a holder that sleeps through the end of its lease. The long ones have keys
// of their own, lest everybody waits for them.
func enter(ctx context.Context, l locker.Locker, start time.Time, ttl, ahead time.Duration) (section, error) {
	key, most, opts := chaosKey(rand.N(fastKeys)), 2*time.Millisecond, []locker.LockOption(nil)
	switch rand.N(400) {
	case 0:
		key, most = chaosKey(fastKeys+rand.N(slowKeys)), 3*ttl
	case 1:
		key, most, opts = chaosKey(fastKeys+rand.N(slowKeys)), 2*ttl, append(opts, locker.WithoutRenewal())
	}
	lease, err := l.Lock(ctx, key, opts...)
	if err != nil {
		return section{}, err
	}
	s := section{key: key, token: lease.Token(), from: time.Since(start)}
	work := time.NewTimer(rand.N(most))
	defer work.Stop()
	select {
	case <-work.C:
	case <-lease.Lost():
	}
	// In this order: if it is not lost now, it was not at the time taken before.
	s.to = time.Since(start)
	s.lost = errors.Is(lease.Context(ctx).Err(), locker.ErrLost)
	s.to = min(s.to, lease.Deadline().Add(-ahead).Sub(start))
	// Lost meanwhile, or nodes that are away: the history tells whether that was right.
	_ = lease.Unlock(ctx)
	return s, nil
}

// makeTrouble makes each kind of trouble on a node at a time, no two on the same one,
// until over is closed, and returns how often.
func makeTrouble(servers []*redistest.Server, over <-chan struct{}, troubles []func(*redistest.Server, func(time.Duration))) int {
	var mu sync.Mutex
	away := make(map[int]bool)
	pick := func() int {
		mu.Lock()
		defer mu.Unlock()
		for {
			if i := rand.N(len(servers)); !away[i] {
				away[i] = true
				return i
			}
		}
	}
	pause := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-over:
		}
	}
	var n atomic.Int64
	var all sync.WaitGroup
	for _, trouble := range troubles {
		all.Go(func() {
			for {
				i := pick()
				trouble(servers[i], pause)
				n.Add(1)
				mu.Lock()
				delete(away, i)
				mu.Unlock()
				select {
				case <-over:
					return
				default:
				}
				pause(rand.N(chaosTTL / 2))
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// checkSections looks for holds of a key that overlap, and for tokens out of order.
func checkSections(history []section) (wrong []string) {
	slices.SortFunc(history, func(a, b section) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.from, b.from))
	})
	for i := 1; i < len(history); i++ {
		a, b := history[i-1], history[i]
		if a.key != b.key {
			continue
		}
		if b.from < a.to {
			wrong = append(wrong, fmt.Sprintf("%s was held until %v (token %d, lost: %t), and by another from %v on (token %d)", a.key, a.to, a.token, a.lost, b.from, b.token))
		}
		if b.token <= a.token {
			wrong = append(wrong, fmt.Sprintf("%s: token %d at %v after token %d at %v", a.key, b.token, b.from, a.token, a.from))
		}
	}
	return wrong
}

func TestCheckSections(t *testing.T) {
	t.Parallel()
	for want, history := range map[string][]section{
		"":                  {{key: "a", token: 2, from: 5, to: 6}, {key: "a", token: 1, from: 1, to: 5}, {key: "b", token: 1, from: 1, to: 9}},
		"by another from":   {{key: "a", token: 1, from: 1, to: 5}, {key: "a", token: 2, from: 4, to: 6}},
		"token 1 at 5ns":    {{key: "a", token: 2, from: 1, to: 2}, {key: "a", token: 1, from: 5, to: 6}},
		"token 7 at 5ns af": {{key: "a", token: 7, from: 1, to: 2}, {key: "a", token: 7, from: 5, to: 6}},
	} {
		wrong := checkSections(history)
		if want == "" {
			require.Empty(t, wrong)
			continue
		}
		require.Len(t, wrong, 1)
		require.Contains(t, wrong[0], want)
	}
}
