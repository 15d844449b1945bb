package setnx

import (
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// NewDriver makes a driver without a Locker, for the suite's group commands.
func NewDriver(rdb redis.UniversalClient) (driver.Driver, error) {
	return newDriver(rdb)
}
