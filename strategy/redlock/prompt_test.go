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
	m := startMasters(t, 3)
	_, d := m.open(t)
	claim := driver.Claim{Key: "k", ID: "0a1b2c3d-0000-8000-8000-0a1b2c3d4e5f:1", TTL: time.Minute}
	acquire := func(ctx context.Context) error {
		a, err := d.Acquire(ctx, driver.Request{Claim: claim, Fencing: true})
		claim.Token = a.Token
		return err
	}
	// The nodes get f's commands when it has returned.
	leaves := func(name string, match faultproxy.Match, f func(context.Context) error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var rules []*faultproxy.Rule
		for _, p := range m.proxies {
			rules = append(rules, p.Delay(match, 1, time.Hour))
		}
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		for _, r := range rules {
			eventually(t, name+" is on its way to each node", func() bool { return r.Fired() > 0 })
		}
		cancel()
		eventually(t, name+" ends with its context", func() bool { return len(ended) > 0 })
		require.Error(t, <-ended, name)
		for _, r := range rules {
			r.Stop()
		}
	}
	leaves("Acquire", isAnyOp, acquire)
	for i := range m.proxies {
		eventually(t, "the attempt reaches the node", func() bool { return m.fence(t, i, "k") > 0 })
		m.free(t, 10*time.Second, i, "k")
	}
	claim.ID += "1"
	require.NoError(t, acquire(t.Context()))
	eventually(t, "the key is on every node", func() bool {
		have, of := d.Nodes(claim)
		return have == of
	})
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
