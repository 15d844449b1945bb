// Package hashlock is the hash lock that hashreentrant and blpop share: Redisson's
// layout, with hold counts that are set, never incremented.
package hashlock

import (
	"context"
	"embed"
	"io/fs"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
)

//go:embed lua
var files embed.FS

var renew, setHolds = NewScript("renew"), NewScript("set holds")

// ChannelPrefix begins the channels that Redisson's waiters listen on.
const ChannelPrefix = "redisson_lock__channel:"

// NewScript makes a script that may use the Lua files of this package.
func NewScript(name string, libraries ...fs.ReadFileFS) *redisconn.Script {
	return redisdriver.NewScript(name, append(libraries, files)...)
}

// Driver is a [driver.Driver] and [driver.HoldCounter] on hash locks. The
// strategies embed it and add how they wait.
type Driver struct {
	*redisdriver.Driver
}

// NewDriver makes a Driver of a strategy's protocol, which has all but Renew.
func NewDriver(rdb redis.UniversalClient, p redisdriver.Protocol) (Driver, error) {
	p.Renew = renew
	d, err := redisdriver.NewDriver(rdb, p)
	return Driver{d}, err
}

// SetHolds implements [driver.HoldCounter]: one round trip on the private client.
func (d Driver) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	return d.Run(ctx, setHolds, c, n)
}
