package redlock

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
)

// A call ends with its ctx, whatever the nodes do, and leaves nothing.
func TestCallersLeaveAtOnce(t *testing.T) {
	t.Parallel()
	const hangs, atOnce = 400 * time.Millisecond, 100 * time.Millisecond
	m := startMasters(t, 3)
	_, d := m.open(t)
	claim := driver.Claim{Key: "k", ID: "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:1", TTL: time.Minute}
	acquire := func(ctx context.Context) error {
		a, err := d.Acquire(ctx, driver.Request{Claim: claim, Fencing: true})
		claim.Token = a.Token
		return err
	}
	leaves := func(name string, match faultproxy.Match, f func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var rules []*faultproxy.Rule
		for _, p := range m.proxies {
			rules = append(rules, p.Delay(match, 1, hangs))
		}
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		for _, r := range rules {
			<-r.Done()
		}
		began := time.Now()
		cancel()
		require.Error(t, <-ended, name)
		require.Less(t, time.Since(began), atOnce, name)
	}
	leaves("Acquire", isAnyOp, acquire)
	for i := range m.proxies {
		eventually(t, "the attempt reaches the node", func() bool { return m.fence(t, i, "k") > 0 })
		m.free(t, 10*time.Second, i, "k")
	}
	claim.ID += "1"
	require.NoError(t, acquire(t.Context()))
	leaves("Renew", isAnyOp, func(ctx context.Context) (renewed error) {
		d.Renew(ctx, []driver.Claim{claim}, func(_ int, err error) { renewed = err })
		return renewed
	})
	leaves("Release", isOp("release"), func(ctx context.Context) error { return d.Release(ctx, claim) })
	for i := range m.proxies {
		m.free(t, 10*time.Second, i, "k")
	}
	leaves("Watch", isSubscribe, func(ctx context.Context) error {
		_, err := d.Watch(ctx, "k")
		return err
	})
}
