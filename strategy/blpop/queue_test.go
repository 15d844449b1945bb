package blpop

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A grant to a process that gives up, with no process behind it in the queue, is
// announced to subscribers: waiters of hashreentrant and of Redisson.
func TestGrantGivenUpIsAnnounced(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	l, err := New(rdb)
	require.NoError(t, err)
	defer l.Close()
	holder, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)

	// A process that has asked, and is granted the lock while it changes its mind.
	d, err := newDriver(rdb)
	require.NoError(t, err)
	defer d.Close()
	configure(t, d, "other")
	req := driver.Request{Claim: driver.Claim{Key: "k", ID: "c", Owner: "c", TTL: time.Minute}, Wait: true}
	a, err := d.Driver.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.False(t, a.Granted)
	require.NoError(t, holder.Unlock(t.Context()))
	fields, err := rdb.HKeys(t.Context(), "k").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"grant:" + d.inboxes.name("k")}, fields)

	channel, _ := d.signals.Channel("k")
	sub := rdb.Subscribe(t.Context(), channel)
	defer sub.Close()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, d.giveUp(t.Context(), "k"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	n, err := rdb.Exists(t.Context(), "k").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// place is one process's in the queue of "k", without what makes it look again.
type place struct {
	*queueDriver
	t   *testing.T
	rdb *redis.Client
	id  string
}

// configure readies a driver whose inbox is called id.
func configure(t *testing.T, d *queueDriver, id string) {
	t.Helper()
	d.inboxes.id = id
	_, err := d.Configure(driver.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
}

func takePlace(t *testing.T, rdb *redis.Client, id string) place {
	t.Helper()
	d, err := newDriver(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	configure(t, d, id)
	p := place{d, t, rdb, id}
	require.False(t, p.asks())
	return p
}

func (p place) asks() (granted bool) {
	p.t.Helper()
	claim := driver.Claim{Key: "k", ID: p.id, Owner: p.id, TTL: time.Minute}
	a, err := p.Driver.Acquire(p.t.Context(), driver.Request{Claim: claim, Wait: true})
	require.NoError(p.t, err)
	return a.Granted
}

var seenOfK = redisdriver.AuxKey("locker:seen:", "k")

// wasSilent has it be heard of that much earlier.
func (p place) wasSilent(d time.Duration) {
	require.NoError(p.t, p.rdb.HIncrBy(p.t.Context(), seenOfK, p.inboxes.name("k"), -d.Microseconds()).Err())
}

// wasTold says whether the lock was pushed to it.
func (p place) wasTold() bool { return p.rdb.LLen(p.t.Context(), p.inboxes.name("k")).Val() > 0 }

func held(t *testing.T, rdb *redis.Client) *locker.Lease {
	t.Helper()
	l, err := New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	lease, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	return lease
}

// A process that was not heard of for longer than a waiter is silent is taken for dead.
func TestTheDeadAreSkipped(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	lease := held(t, rdb)
	dead, silent, alive := takePlace(t, rdb, "dead"), takePlace(t, rdb, "silent"), takePlace(t, rdb, "alive")
	dead.wasSilent(2100 * time.Millisecond)
	silent.wasSilent(time.Second) // a busy machine's
	require.NoError(t, lease.Unlock(t.Context()))
	require.False(t, dead.wasTold())
	require.True(t, silent.wasTold(), "the first that may be alive")
	require.False(t, alive.wasTold())
}

// A process that asks is alive, however long it was silent.
func TestWhoAsksIsAlive(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	held(t, rdb)
	late, next := takePlace(t, rdb, "late"), takePlace(t, rdb, "next")
	late.wasSilent(2100 * time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	require.True(t, late.asks())
	require.False(t, next.asks())
}

// timePasses for "k" and all that its queue knows of.
func timePasses(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	timePassesForQueue(t, rdb, d)
	ctx := t.Context()
	require.NoError(t, rdb.PExpire(ctx, "k", rdb.PTTL(ctx, "k").Val()-d).Err()) // of 0 or less deletes it
}

func timePassesForQueue(t *testing.T, rdb *redis.Client, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	for _, field := range rdb.HKeys(ctx, seenOfK).Val() {
		if field != "granted" && field != "count" {
			require.NoError(t, rdb.HIncrBy(ctx, seenOfK, field, -d.Microseconds()).Err())
		}
	}
}

// However many processes die together while they wait, the others lose one grant by it.
func TestManyDieAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	lease := held(t, rdb)
	var dead []place
	for _, id := range []string{"dead 1", "dead 2", "dead 3"} {
		dead = append(dead, takePlace(t, rdb, id))
	}
	alive, last := takePlace(t, rdb, "alive"), takePlace(t, rdb, "last")
	require.NoError(t, lease.Unlock(t.Context()))
	require.True(t, dead[0].wasTold())
	require.True(t, rdb.Persist(t.Context(), "k").Val(), "the grant is pending") // until it is deleted
	timePassesForQueue(t, rdb, 900*time.Millisecond)
	require.False(t, alive.asks())
	require.False(t, last.asks())
	timePassesForQueue(t, rdb, 100*time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the grant is over
	require.False(t, last.asks(), "another one was before it")
	require.True(t, alive.wasTold())
	require.True(t, alive.asks())

	// Nor do they cost anything when the lock is free again.
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	require.True(t, last.asks())
	for _, d := range dead[1:] {
		require.False(t, d.wasTold())
	}
	// They have kept their places.
	require.NoError(t, rdb.Del(t.Context(), "k").Err())
	require.True(t, dead[1].asks())
}

// After a short grant that nobody took whoever was heard of a moment ago is not passed
// over.
func TestWhoAskedLatelyIsNotPassedOver(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	lease := held(t, rdb)
	dead, second, third := takePlace(t, rdb, "dead"), takePlace(t, rdb, "second"), takePlace(t, rdb, "third")
	dead.wasSilent(1200 * time.Millisecond)
	require.NoError(t, lease.Unlock(t.Context()))
	require.True(t, dead.wasTold())
	timePasses(t, rdb, 500*time.Millisecond)
	require.False(t, third.asks())
	require.True(t, second.wasTold())
	left, err := rdb.PTTL(t.Context(), "k").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, time.Second/2, "it may be dead as well")
}

// When a run of hand-overs ends and the first of the queue is dead, the next one comes.
func TestOpeningForADeadOne(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	lease := held(t, rdb)
	dead, alive := takePlace(t, rdb, "dead"), takePlace(t, rdb, "alive")
	require.NoError(t, rdb.HSet(t.Context(), seenOfK, "open", time.Now().Add(-time.Second).UnixMicro(), "count", 100).Err())
	require.NoError(t, lease.Unlock(t.Context()))
	require.True(t, dead.wasTold())
	require.True(t, alive.wasTold())
	require.False(t, alive.asks(), "the opening is for others")
	dead.wasSilent(time.Second)
	require.Eventually(t, alive.asks, time.Second, time.Millisecond, "the opening ends")
}

// A waiter that comes too late for its grant, because the server is far away, takes the
// lock if no other was granted it since: else the waiters would miss their turns one
// after the other, for ever.
func TestLateForTheGrant(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	lease := held(t, rdb)
	first, second := takePlace(t, rdb, "first"), takePlace(t, rdb, "second")
	require.NoError(t, lease.Unlock(t.Context()))
	left, err := rdb.PTTL(t.Context(), "k").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, time.Second, "if it is dead, the others do not wait for long")
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the grant is over
	require.True(t, first.asks())
	require.False(t, second.asks())

	// That is good for once.
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // it vanished
	require.False(t, first.asks(), "the lock is the second's turn")
	require.True(t, second.wasTold())
	require.True(t, second.asks())
}

// A server's clock that goes back does not make an opening longer.
func TestOpeningAndAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	held(t, rdb)
	waiter := takePlace(t, rdb, "waiter")
	future := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, rdb.HSet(t.Context(), seenOfK, "until", future, "open", future, "count", 100).Err())
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	require.True(t, waiter.asks())
}
