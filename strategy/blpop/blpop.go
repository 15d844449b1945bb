package blpop

import (
	"context"
	_ "embed"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/hashlock"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/queue.lua
	queue string
	//go:embed lua/acquire.lua
	acquire string
	//go:embed lua/release.lua
	release string
	//go:embed lua/giveup.lua
	giveUp string

	acquireScript = hashlock.NewScript("acquire", queue, acquire)
	releaseScript = hashlock.NewScript("release", queue, release)
	giveUpScript  = hashlock.NewScript("give up", queue, giveUp)
)

// queueDriver adds the queue of processes to the hash lock.
type queueDriver struct {
	hashlock.Driver
	signals *redisdriver.Signals // names the channels
	inboxes *inboxes
}

var _ interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
} = (*queueDriver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 16 connections of its own
// for renewals and releases, and one to block on while a caller waits (on a
// cluster up to 16 a node).
func New(rdb redis.UniversalClient, opts ...locker.Option) (locker.Locker, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, d.Driver.Driver, opts)
}

func newDriver(rdb redis.UniversalClient) (*queueDriver, error) {
	d := &queueDriver{}
	var err error
	d.Driver, err = hashlock.NewDriver(rdb, redisdriver.Protocol{
		Name:    "blpop",
		Acquire: acquireScript,
		Release: releaseScript,
		More:    d.more,
		Late:    d.late,
	})
	if err != nil {
		return nil, err
	}
	d.signals = d.NewSignals(hashlock.ChannelPrefix)
	d.inboxes = newInboxes(d)
	return d, nil
}

// Configure implements [driver.Configurer]. save in holds.lua tells our ids from Java's
// by their version.
func (d *queueDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	_, err := d.Driver.Configure(cfg)
	return driver.Settings{IDVersion: 8}, err
}

// more gives the scripts what each needs beside the claim.
func (d *queueDriver) more(s *redisdriver.Script, req driver.Request) []any {
	switch s {
	case acquireScript:
		waits := 0
		if req.Wait {
			waits = 1
		}
		return []any{d.inboxes.name(req.Key), waits}
	case releaseScript, giveUpScript:
		channel, publish := d.signals.Channel(req.Key)
		return []any{channel, publish}
	}
	return nil
}

// Acquire implements [driver.Driver].
func (d *queueDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	a, err := d.Driver.Acquire(ctx, req)
	if req.Wait && !a.Granted && !d.inboxes.refused(req.Key) {
		a.NoWakeUp = true
	}
	return a, err
}

// late is told of an attempt whose caller had left: the place that it may have taken
// in the queue is kept only if the key is still watched.
func (d *queueDriver) late(req driver.Request) {
	if req.Wait {
		d.inboxes.refused(req.Key)
	}
}

// Watch implements [driver.Notifier].
func (d *queueDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	return d.inboxes.watch(ctx, key)
}

// giveUp takes the process out of the queue of key.
func (d *queueDriver) giveUp(ctx context.Context, key string) error {
	return d.Run(ctx, giveUpScript, driver.Claim{Key: key}, d.inboxes.name(key))
}

// Close implements [driver.Driver].
func (d *queueDriver) Close() error {
	d.inboxes.close()
	d.signals.Close()
	return d.Driver.Close()
}
