package blpop

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/distlock/locker"
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
