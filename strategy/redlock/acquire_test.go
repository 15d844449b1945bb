package redlock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While mostAttempts are under way, an attempt waits, and its lease counts from the end of the wait.
func TestAttemptsWaitForAPlace(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	_, d := m.open(t)
	held := driver.Claim{Key: "held", ID: "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:1", TTL: time.Minute}
	_, err := d.Acquire(t.Context(), driver.Request{Claim: held})
	require.NoError(t, err)
	require.Empty(t, d.attempts, "an attempt that is over gives its place back")
	for range mostAttempts {
		d.attempts <- struct{}{}
	}
	claim := driver.Claim{Key: "k", ID: "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:2", TTL: time.Minute}
	acquire := func(ctx context.Context) (driver.Answer, error) {
		return d.Acquire(ctx, driver.Request{Claim: claim})
	}

	ctx, cancel := context.WithCancel(t.Context())
	spy := &doneSpy{Context: ctx, asked: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { _, err := acquire(spy); ended <- err }()
	<-spy.asked
	cancel()
	require.Equal(t, errNoPlace, <-ended)
	require.False(t, driver.MaybeApplied(errNoPlace))

	_, err = acquire(dated{t.Context(), time.Now().Add(2 * time.Second)})
	require.Equal(t, errNoPlace, err, "it waits for no place that comes too late for an attempt")

	d.Renew(t.Context(), []driver.Claim{held}, func(_ int, err error) { assert.NoError(t, err, "a renewal needs no place") })
	require.NoError(t, d.Release(t.Context(), held), "a release needs no place")

	spy = &doneSpy{Context: t.Context(), asked: make(chan struct{})}
	var a driver.Answer
	go func() {
		var err error
		a, err = acquire(spy)
		ended <- err
	}()
	<-spy.asked
	freed := time.Now()
	<-d.attempts
	require.NoError(t, <-ended)
	require.True(t, a.Granted)
	require.Equal(t, claim.ID, a.Claim)
	require.False(t, a.Since.Before(freed), "the lease counts from the end of the wait")
	require.Len(t, d.attempts, mostAttempts-1)
}

// dated has a deadline, and does not end by it.
type dated struct {
	context.Context
	end time.Time
}

func (d dated) Deadline() (time.Time, bool) { return d.end, true }

// doneSpy closes asked at the first call of Done.
type doneSpy struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (s *doneSpy) Done() <-chan struct{} {
	s.once.Do(func() { close(s.asked) })
	return s.Context.Done()
}
