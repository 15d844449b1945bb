package permitstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Requests come at the same time, twice, and from callers that give up or are cut off. The head always counts
// what its claims have together, callers never have more than the limit, and a lock is alone. So it is at
// every isolation level.
func addUp(t *test) {
	for _, level := range t.k.Levels {
		t.Run(level, func(sub *testing.T) {
			sub.Parallel()
			var settings []string
			if level != "" {
				settings = []string{level}
			}
			addUpAt(&test{sub, t.k}, settings...)
		})
	}
}

func addUpAt(t *test, settings ...string) {
	const workers, rounds, limit = 8, 20, 6
	s := t.k.Start(t.T, settings...)
	first, c := s.Driver(t.T, 0), claim(ofThird(0), time.Minute, 1, limit)
	require.True(t, take(t, first, c).Granted) // makes the tables
	require.NoError(t, first.Release(t.Context(), c))

	var inside atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	defer func() { stop.Store(true); all.Wait() }()
	for w := range workers {
		d := s.Driver(t.T, 3)
		all.Go(func() {
			for round := 0; round < rounds && !stop.Load(); round++ {
				work(t, d, fmt.Sprintf("0000000%d-0000-4000-8000-000000000000:%d", w, round), limit, &inside)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for checks := 0; ; checks++ {
		checkSum(t, s)
		if checks%50 == 49 {
			require.NoError(t, s.Cut(t.Context()))
		}
		select {
		case <-done:
			checkSum(t, s)
			return
		default:
		}
	}
}

// checkSum compares the heads of eras with their claims, in one snapshot.
func checkSum(t *test, s Store) {
	t.Helper()
	late := ""
	if t.k.EndsFollow {
		late = ` OR late`
	}
	wrong := ""
	require.NoError(t, s.Ask(t.Context(), &wrong, `SELECT COALESCE(MIN(CONCAT('the id of the head is ', head, ', its claims have ', has, ' permits')), '') FROM (
		SELECT `+t.k.Text("l.id")+` AS head, COALESCE(SUM(p.permits), 0) AS has, COALESCE(MAX(p.expires) > l.expires, false) AS late
		FROM `+t.k.Keys+` l LEFT JOIN `+t.k.Claims+` p ON p.hash = l.hash AND p.era = l.since
		WHERE l.id LIKE 'permits %' AND l.expires > `+t.k.After(0)+` GROUP BY l.hash, l.id, l.expires
	) AS heads WHERE `+t.k.Word("head", 3)+` <> has`+late))
	require.Empty(t, wrong)
}

// work asks for permits, or for the lock, and gives back what it gets. It tries each command until it has an
// answer, as the engine does.
func work(t *test, d driver.Driver, id string, limit int, inside *atomic.Int64) {
	t.Helper()
	ctx := context.Background()
	c := claim(id, time.Minute, 1+rand.IntN(3), limit)
	weight := int64(c.Permits)
	switch rand.IntN(8) {
	case 0:
		c.Permits, c.Limit, weight = 0, 0, int64(limit)
	case 1:
		c.TTL = driver.BidTime / 20 // it dies
	}
	req := driver.Request{Claim: c, Fencing: rand.IntN(2) == 0, Waits: true}
	for began := time.Now(); time.Since(began) < time.Second; req.Waited = time.Since(began) {
		sent := time.Now()
		a, err := d.Acquire(ctx, req)
		if err == nil && rand.IntN(3) == 0 {
			a, err = d.Acquire(ctx, req) // it arrives twice
		}
		if err != nil || !a.Granted {
			continue
		}
		if c.TTL < time.Second {
			return // its process died; nobody counts it
		}
		if n := inside.Add(weight); n > int64(limit) {
			t.Errorf("%d of %d permits are out", n, limit)
		}
		d.Renew(ctx, []driver.Claim{c}, func(_ int, err error) {
			if errors.Is(err, driver.ErrLost) {
				t.Errorf("a claim of %v is lost after %v", c.TTL, time.Since(sent))
			}
		})
		inside.Add(-weight)
		break
	}
	for { // also what has no answer may have been granted
		err := d.Release(ctx, c)
		if err == nil || errors.Is(err, driver.ErrLost) {
			return
		}
	}
}

// The permits of a process that is killed are free after their TTL, though another one renews its own. The
// process is this test with the URL in its environment.
func ofAKilledProcess(t *test) {
	const env, ttl = "LOCKER_PERMITS_OF", 2 * time.Second
	acquire := func(d driver.Driver, n int) (*locker.Lease, error) {
		return semaphore(t, open(t, d, locker.WithTTL(ttl)), 4).AcquireN(t.Context(), n, locker.WithWait(time.Minute))
	}
	if url := os.Getenv(env); url != "" {
		_, err := acquire(t.k.Dial(t.T, url), 3)
		require.NoError(t, err)
		fmt.Println("acquired")
		select {} // until it is killed
	}
	s := t.k.Start(t.T)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), env+"="+s.URL())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "acquired"; {
	}
	one, err := acquire(s.Driver(t.T, 0), 1)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	next, err := acquire(s.Driver(t.T, 0), 3)
	require.NoError(t, err)
	require.NoError(t, next.Unlock(t.Context()))
	require.NoError(t, one.Unlock(t.Context()))
}
