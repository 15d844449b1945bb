package blpop

import (
	"context"
	"embed"

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
	Name:             "blpop",
	Layouts:          layouts.All,
	Acquire:          hashlock.NewScript("acquire", files, limits{}),
	AcquireInCluster: hashlock.NewScript("acquire", files, redisdriver.InCluster, limits{}),
	Release:          hashlock.NewScript("release", files, limits{}),

	AcquirePermits:          redisdriver.NewScript("acquire permits", files, limits{}),
	AcquirePermitsInCluster: redisdriver.NewScript("acquire permits", files, redisdriver.InCluster, limits{}),
	ReleasePermits:          redisdriver.NewScript("release permits", files, limits{}),
}

// queueDriver adds the queue of processes to the hash lock, and to permits.
type queueDriver struct {
	hashlock.Driver
	redisdriver.PermitKeeper
	inboxes *inboxes
}

var _ interface {
	driver.Driver
	driver.Notifier
	driver.HoldCounter
	driver.Signaller
	driver.PermitKeeper
	driver.PermitInspector
} = (*queueDriver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 20 connections of its own
// for its commands, and one to block on while a caller waits (on a
// cluster up to 16 a node).
// New fails with [locker.ErrInvalid] on a nil client or bad options. It accepts a *redis.Ring with a warning to the
// Logger: a Ring can grant a lock twice.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, opts)
}

func newDriver(rdb redis.UniversalClient) (*queueDriver, error) {
	lock, err := hashlock.NewDriver(rdb, protocol)
	if err != nil {
		return nil, err
	}
	d := &queueDriver{Driver: lock, PermitKeeper: redisdriver.NewPermitKeeper(lock.Driver)}
	d.inboxes = newInboxes(d)
	return d, nil
}

// Configure implements [driver.Configurer].
func (d *queueDriver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.inboxes.log = cfg.Logger
	return d.Driver.Configure(cfg)
}

// Acquire implements [driver.Driver]. An attempt of a process that waits may be answered
// by a grant that was pushed to it, without a command.
func (d *queueDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	var at *attempt
	if req.Wait {
		var a driver.Answer
		if at, a = d.inboxes.ask(req); a.Granted {
			return a, nil
		}
	}
	switch {
	case at == nil && req.Limit > 0: // it may wait without a Watch
		return d.AcquireWith(ctx, req, d.inboxes.name(req.Key), 0)
	case at == nil: // the key is not watched, or not any more
		return d.Driver.Acquire(ctx, req)
	}
	a, err := d.AcquireWith(ctx, req, at.args()...)
	return d.inboxes.answered(at, a, err), err
}

// Release implements [driver.Driver]. A claim without a token may be an attempt that was
// not answered: it may have a place in the queue.
func (d *queueDriver) Release(ctx context.Context, c driver.Claim) error {
	if c.Token == 0 {
		return d.giveUp(ctx, c)
	}
	return d.Driver.Release(ctx, c)
}

// giveUp releases c, and takes the process out of the queue if it waits with c. Each release of permits
// does.
func (d *queueDriver) giveUp(ctx context.Context, c driver.Claim) error {
	if c.Limit > 0 {
		return d.Driver.Release(ctx, c)
	}
	return d.Run(ctx, protocol.Release, c, d.inboxes.name(c.Key))
}

// Watch implements [driver.Notifier].
func (d *queueDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	node, err := d.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	return d.inboxes.watch(key, node)
}

// Close implements [driver.Driver].
func (d *queueDriver) Close() error {
	d.inboxes.close()
	return d.Driver.Close()
}
