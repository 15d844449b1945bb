package redisdriver

import (
	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Open makes a Locker of strategy, which embeds d, and closes d if that fails.
func Open(strategy driver.Driver, d *Driver, opts []locker.Option) (locker.Locker, error) {
	l, err := locker.New(strategy, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return l, nil
}
