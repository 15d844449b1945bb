package blpop

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redistest"
	"github.com/stretchr/testify/require"
)

// What was granted to a process that gives up, with nobody behind it in the queue,
// is announced to those who subscribe: waiters of hashreentrant and of Redisson.
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
	require.NoError(t, d.Configure(locker.DriverConfig{LockerID: "other", Logger: slog.New(slog.DiscardHandler)}))
	req := locker.Request{Claim: locker.Claim{Key: "k", ID: "c", Owner: "c", TTL: time.Minute}, Wait: true}
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

// Who was not heard of for longer than a waiter is silent is taken for dead; who asks
// is not.
func TestTheDeadAreSkipped(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	holder, err := New(rdb)
	require.NoError(t, err)
	defer holder.Close()
	claim := locker.Claim{Key: "k", ID: "c", Owner: "c", TTL: time.Minute}
	waiting := func(id string) (inbox string) {
		d, err := newDriver(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		require.NoError(t, d.Configure(locker.DriverConfig{LockerID: id, Logger: slog.New(slog.DiscardHandler)}))
		a, err := d.Driver.Acquire(t.Context(), locker.Request{Claim: claim, Wait: true})
		require.NoError(t, err)
		require.False(t, a.Granted)
		return d.inboxes.name("k")
	}
	queue, seen := redisdriver.AuxKey("locker:queue:", "k"), redisdriver.AuxKey("locker:seen:", "k")
	silence := func(inbox string, d time.Duration) {
		require.NoError(t, rdb.HIncrBy(t.Context(), seen, inbox, -d.Microseconds()).Err())
	}
	granted := func() string {
		fields, err := rdb.HKeys(t.Context(), "k").Result()
		require.NoError(t, err)
		require.Len(t, fields, 1)
		return fields[0]
	}
	queued := func() []string { return rdb.ZRange(t.Context(), queue, 0, -1).Val() }

	lease, err := holder.Lock(t.Context(), "k")
	require.NoError(t, err)
	gone, silent, alive := waiting("gone"), waiting("silent"), waiting("alive")
	silence(gone, 2100*time.Millisecond)
	silence(silent, 1500*time.Millisecond) // a busy machine's
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, "grant:"+silent, granted(), "the first that may be alive")
	require.Equal(t, []string{alive}, queued())
	left, err := rdb.PTTL(t.Context(), "k").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, 600*time.Millisecond, "if it is dead, the others do not wait for long")

	require.NoError(t, rdb.Del(t.Context(), "k", queue, seen).Err())
	lease, err = holder.Lock(t.Context(), "k")
	require.NoError(t, err)
	back, err := newDriver(rdb)
	require.NoError(t, err)
	defer back.Close()
	require.NoError(t, back.Configure(locker.DriverConfig{LockerID: "back", Logger: slog.New(slog.DiscardHandler)}))
	ask := func() locker.Answer {
		a, err := back.Driver.Acquire(t.Context(), locker.Request{Claim: claim, Wait: true})
		require.NoError(t, err)
		return a
	}
	require.False(t, ask().Granted)
	waiting("alive")
	silence(back.inboxes.name("k"), 2100*time.Millisecond)
	require.NoError(t, rdb.Del(t.Context(), "k").Err()) // the holder vanished
	require.True(t, ask().Granted, "who asks is alive")
	require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
}
