package hashreentrant

import (
	"context"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
)

// NewDriver makes a driver without a Locker, for the suite's group commands.
func NewDriver(rdb redis.UniversalClient) (driver.Driver, error) { return newDriver(rdb) }

// NewWithoutTurns makes a Locker as versions before made it: it takes no turns with other processes.
func NewWithoutTurns(rdb redis.UniversalClient) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(withoutTurns{d}, nil)
}

type withoutTurns struct{ *pubsubDriver }

func (d withoutTurns) Configure(cfg driver.Config) (driver.Settings, error) {
	s, err := d.pubsubDriver.Configure(cfg)
	s.IDMark = 0
	return s, err
}

func (d withoutTurns) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.Driver.Acquire(ctx, req)
}

func (d withoutTurns) Release(ctx context.Context, c driver.Claim) error {
	return d.Driver.Release(ctx, c)
}

func (d withoutTurns) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w, err := d.Channels.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	return w, nil
}
