package mysql_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	lockmysql "github.com/distlock/locker/strategy/mysql"
)

// Requests come at the same time, twice, and from callers that give up or are cut off. The head always counts what its claims have
// together, callers never have more than the limit, and
// a lock is alone. So it is at every isolation level.
func TestPermitsAddUp(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			permitsAddUp(t, startServer(t, "--transaction-isolation="+isolation))
		})
	}
}

func permitsAddUp(t *testing.T, s *server) {
	t.Helper()
	ctx := t.Context()
	const workers, rounds, limit = 8, 20, 6
	first := lockmysql.NewDriver(s.pool(t, 0, ""))
	c := permitsOf(ofThird(0), time.Minute, 1, limit)
	require.True(t, takePermits(t, first, c).Granted) // makes the tables
	require.NoError(t, first.Release(ctx, c))
	require.NoError(t, first.Close())

	var inside atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		d := lockmysql.NewDriver(s.pool(t, 3, ""))
		t.Cleanup(func() { _ = d.Close() })
		all.Go(func() {
			for round := range rounds {
				work(t, d, fmt.Sprintf("0000000%d-0000-4000-8000-000000000000:%d", w, round), limit, &inside)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for checks := 0; ; checks++ {
		checkSum(t, s)
		if checks%50 == 49 {
			require.NoError(t, s.cut(ctx))
		}
		select {
		case <-done:
			checkSum(t, s)
			return
		default:
		}
	}
}

// checkSum compares the head of an era with its claims, in one snapshot.
func checkSum(t *testing.T, s *server) {
	t.Helper()
	var id string
	var sum int
	err := s.root.QueryRowContext(t.Context(), `SELECT l.id, COALESCE(SUM(p.permits), 0)
		FROM `+table+` l LEFT JOIN `+permitsTable+` p ON p.hash = l.hash AND p.era = l.since
		WHERE l.id LIKE 'permits %' AND l.expires > `+now+` GROUP BY l.hash, l.id`).Scan(&id, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return
	}
	require.NoError(t, err)
	var limited, used int
	_, err = fmt.Sscanf(id, "permits %d %d", &limited, &used)
	require.NoError(t, err, id)
	require.Equal(t, used, sum, id)
}

// work asks for permits, or for the lock, and gives back what it gets. It tries each command until it has an answer, as the engine does.
func work(t *testing.T, d driver.Driver, id string, limit int, inside *atomic.Int64) {
	t.Helper()
	ctx := context.Background()
	c := permitsOf(id, time.Minute, 1+rand.IntN(3), limit)
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

// The permits of a process that is killed are free after their TTL, though another one renews its own. The process is this test with the URL in its environment.
func TestPermitsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	const env, ttl = "LOCKER_MYSQL_PERMITS", 2 * time.Second
	acquire := func(url string, n int) (*locker.Lease, error) {
		db, err := openPool(url, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		s, err := locker.NewSemaphore(newLocker(t, db, locker.WithTTL(ttl)), "k", 4)
		require.NoError(t, err)
		return s.AcquireN(t.Context(), n, locker.WithWait(time.Minute))
	}
	if url := os.Getenv(env); url != "" {
		_, err := acquire(url, 3)
		require.NoError(t, err)
		fmt.Println("acquired")
		select {} // until it is killed
	}
	s := startServer(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+s.dsn(""))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "acquired"; {
	}
	one, err := acquire(s.dsn(""), 1)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	next, err := acquire(s.dsn(""), 3)
	require.NoError(t, err)
	require.NoError(t, next.Unlock(t.Context()))
	require.NoError(t, one.Unlock(t.Context()))
}
