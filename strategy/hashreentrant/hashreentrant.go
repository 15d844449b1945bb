package hashreentrant

import (
	"context"
	"embed"
	"slices"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/hashlock"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/strategy/internal/layouts"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var protocol = redisdriver.Protocol{
	Name:             "hashreentrant",
	Layouts:          layouts.All,
	Acquire:          hashlock.NewScript("acquire", files),
	AcquireInCluster: hashlock.NewScript("acquire", files, redisdriver.InCluster),
	Release:          hashlock.NewScript("release", files),
}

// pubsubDriver adds wake-ups by pub/sub to the hash lock.
type pubsubDriver struct {
	hashlock.Driver
	redisdriver.PermitKeeper
}

var _ interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
	driver.Signaller
	driver.PermitKeeper
	driver.PermitInspector
} = (*pubsubDriver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 20 connections of its own
// for renewals and releases, and one for subscriptions while a caller waits.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, opts)
}

func newDriver(rdb redis.UniversalClient) (*pubsubDriver, error) {
	d, err := hashlock.NewDriver(rdb, protocol)
	return &pubsubDriver{d, redisdriver.NewPermitKeeper(d.Driver)}, err
}

// Configure implements [driver.Configurer].
func (d *pubsubDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	cfg.Options = slices.DeleteFunc(slices.Clone(cfg.Options), func(o any) bool {
		sharded, ok := o.(shardedPubSub)
		if ok {
			d.Channels.SetSharded(bool(sharded))
		}
		return ok
	})
	return d.Driver.Configure(cfg)
}

// Watch implements [driver.Notifier].
func (d *pubsubDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w, err := d.Channels.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	return w, nil
}
