// Package hashlock has the hash lock that hashreentrant and blpop share: Redisson's layout,
// with hold counts that are set, never incremented.
package hashlock

import (
	"context"
	"embed"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redispubsub"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var renew, setHolds = NewScript("renew"), NewScript("set holds")

// channelPrefix begins the channels that Redisson's waiters listen on.
const channelPrefix = "redisson_lock__channel:"

// NewScript makes a script that may use the Lua files of this package.
func NewScript(name string, libraries ...redisconn.Files) *redisconn.Script {
	return redisdriver.NewScript(name, append(libraries, files)...)
}

// Driver is a [driver.Driver] and [driver.HoldCounter] on hash locks. The strategies embed it
// and add how they wait.
type Driver struct {
	*redisdriver.Driver
	Channels *redispubsub.Channels // of releases
}

// NewDriver makes a Driver of a strategy's protocol, which has all but Renew.
func NewDriver(rdb redis.UniversalClient, p redisdriver.Protocol) (Driver, error) {
	p.Renew = renew
	d, err := redisdriver.NewDriver(rdb, p)
	if err != nil {
		return Driver{}, err
	}
	return Driver{d, d.NewChannels(channelPrefix)}, nil
}

// Configure implements [driver.Configurer]. save in holds.lua knows our ids from Java's by
// the version of their UUID.
func (d Driver) Configure(cfg driver.Config) (driver.Settings, error) {
	s, err := d.Driver.Configure(cfg)
	s.IDVersion = 8
	return s, err
}

// SetHolds implements [driver.HoldCounter]: one round trip.
func (d Driver) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	return d.Run(ctx, setHolds, c, n)
}

// Close implements [driver.Driver].
func (d Driver) Close() error {
	d.Channels.Close()
	return d.Driver.Close()
}
