package setnx

import (
	"embed"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/strategy/internal/layouts"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var protocol = redisdriver.Protocol{
	Name:             "setnx",
	Layouts:          layouts.All,
	Acquire:          redisdriver.NewScript("acquire", files),
	AcquireInCluster: redisdriver.NewScript("acquire", files, redisdriver.InCluster),
	Renew:            redisdriver.NewScript("renew", files),
	Release:          redisdriver.NewScript("release", files),
}

// keeper adds permits to the lock.
type keeper struct {
	*redisdriver.Driver
	redisdriver.PermitKeeper
}

var _ interface {
	driver.Driver
	driver.Signaller
	driver.PermitKeeper
	driver.PermitInspector
} = keeper{}

func newDriver(rdb redis.UniversalClient) (driver.Driver, error) {
	d, err := redisdriver.NewDriver(rdb, protocol)
	if err != nil {
		return nil, err
	}
	return keeper{d, redisdriver.NewPermitKeeper(d)}, nil
}

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 20 connections of its own
// for its commands, so that they go through whatever rdb is busy with.
// New fails with [locker.ErrInvalid] on a nil client or bad options. It accepts a *redis.Ring with a warning to the
// Logger: a Ring can grant a lock twice.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, opts)
}
