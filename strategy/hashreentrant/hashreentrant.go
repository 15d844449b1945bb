package hashreentrant

import (
	"context"
	"embed"
	"slices"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/hashlock"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redispubsub"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var (
	acquireScript = hashlock.NewScript("acquire", files)
	releaseScript = hashlock.NewScript("release", files)
)

// pubsubDriver adds wake-ups by pub/sub to the hash lock.
type pubsubDriver struct {
	hashlock.Driver
	channels *redispubsub.Channels
}

var _ interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
} = (*pubsubDriver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 20 connections of its own
// for renewals and releases, and one for subscriptions while a caller waits.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, d.Driver.Driver, opts)
}

func newDriver(rdb redis.UniversalClient) (*pubsubDriver, error) {
	d := &pubsubDriver{}
	var err error
	d.Driver, err = hashlock.NewDriver(rdb, redisdriver.Protocol{
		Name:    "hashreentrant",
		Acquire: acquireScript,
		Release: releaseScript,
	})
	if err != nil {
		return nil, err
	}
	d.channels = d.NewChannels(hashlock.ChannelPrefix)
	return d, nil
}

// Configure implements [driver.Configurer]. save in holds.lua tells our ids from Java's
// by their version.
func (d *pubsubDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	cfg.Options = slices.DeleteFunc(slices.Clone(cfg.Options), func(o any) bool {
		sharded, ok := o.(shardedPubSub)
		if ok {
			d.channels.SetSharded(bool(sharded))
		}
		return ok
	})
	_, err := d.Driver.Configure(cfg)
	return driver.Settings{IDVersion: 8}, err
}

// Watch implements [driver.Notifier].
func (d *pubsubDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w, err := d.channels.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Close implements [driver.Driver].
func (d *pubsubDriver) Close() error {
	d.channels.Close()
	return d.Driver.Close()
}
