package hashreentrant

import (
	"context"
	_ "embed"

	"github.com/distlock/locker"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/counts.lua
	counts string
	//go:embed lua/acquire.lua
	acquire string
	//go:embed lua/renew.lua
	renew string
	//go:embed lua/setholds.lua
	setHolds string
	//go:embed lua/release.lua
	release string

	acquireScript  = redisdriver.NewScript("acquire", counts+acquire)
	renewScript    = redisdriver.NewScript("renew", counts+renew)
	setHoldsScript = redisdriver.NewScript("set holds", counts+setHolds)
	releaseScript  = redisdriver.NewScript("release", counts+release)
)

// driver adds stored hold counts and wake-ups to the shared driver.
type driver struct {
	*redisdriver.Driver
	signals *redisdriver.Signals
}

var _ interface {
	locker.Driver
	locker.Notifier
	locker.HoldCounter
} = (*driver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 16 connections of its own
// for renewals and releases, and one for subscriptions while somebody waits.
func New(rdb redis.UniversalClient, opts ...locker.Option) (locker.Locker, error) {
	d := &driver{}
	var err error
	d.Driver, err = redisdriver.NewDriver(rdb, redisdriver.Protocol{
		Name:    "hashreentrant",
		Acquire: acquireScript,
		Renew:   renewScript,
		Release: releaseScript,
		More: func(s *redisdriver.Script, key string) ([]string, []any) {
			if s != releaseScript {
				return nil, nil
			}
			channel, publish := d.signals.Channel(key)
			return nil, []any{channel, publish}
		},
	})
	if err != nil {
		return nil, err
	}
	d.signals = d.NewSignals("redisson_lock__channel:")
	return redisdriver.Open(d, d.Driver, opts)
}

// SetHolds implements [locker.HoldCounter].
func (d *driver) SetHolds(ctx context.Context, c locker.Claim, n int) error {
	return d.Run(ctx, setHoldsScript, c, n)
}

// Watch implements [locker.Notifier].
func (d *driver) Watch(ctx context.Context, key string) (locker.Watch, error) {
	return d.signals.Watch(ctx, key)
}

// Close implements [locker.Driver].
func (d *driver) Close() error {
	d.signals.Close()
	return d.Driver.Close()
}
