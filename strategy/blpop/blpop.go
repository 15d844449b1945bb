package blpop

import (
	"context"
	_ "embed"

	"github.com/distlock/locker"
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

	acquireScript = hashlock.NewScript("acquire", acquire, queue)
	releaseScript = hashlock.NewScript("release", release, queue)
	giveUpScript  = hashlock.NewScript("give up", giveUp, queue)
)

// driver adds the queue of processes to the hash lock.
type driver struct {
	hashlock.Driver
	signals *redisdriver.Signals // names the channels
	inboxes *inboxes
}

var _ interface {
	locker.Driver
	locker.Notifier
	locker.HoldCounter
	locker.Branded
} = (*driver)(nil)

// New makes a Locker on rdb: a single Redis, a Sentinel set-up or a cluster. rdb
// stays the caller's; beside it the Locker opens up to 16 connections of its own
// for renewals and releases, and one to block on while somebody waits (on a
// cluster up to 16 a node).
func New(rdb redis.UniversalClient, opts ...locker.Option) (locker.Locker, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, d.Driver.Driver, opts)
}

func newDriver(rdb redis.UniversalClient) (*driver, error) {
	d := &driver{}
	var err error
	d.Driver, err = hashlock.NewDriver(rdb, "blpop", acquireScript, releaseScript, d.more)
	if err != nil {
		return nil, err
	}
	d.signals = d.NewSignals(hashlock.ChannelPrefix)
	d.inboxes = newInboxes(d)
	return d, nil
}

// Brand implements [locker.Branded]: is_ours in queue.lua knows it.
func (d *driver) Brand() int { return 8 }

// Configure implements [locker.Configurer].
func (d *driver) Configure(cfg locker.DriverConfig) error {
	d.inboxes.id = cfg.LockerID
	return d.Driver.Configure(cfg)
}

// more gives the scripts the queue, and what each needs beside it.
func (d *driver) more(s *redisdriver.Script, req locker.Request) (keys []string, args []any) {
	switch s {
	case acquireScript:
		waits := 0
		if req.Wait {
			waits = 1
		}
		args = []any{d.inboxes.name(req.Key), waits}
	case releaseScript, giveUpScript:
		channel, publish := d.signals.Channel(req.Key)
		args = []any{channel, publish}
	default:
		return nil, nil
	}
	return []string{
		redisdriver.AuxKey("locker:queue:", req.Key),
		redisdriver.AuxKey("locker:seen:", req.Key),
	}, args
}

// Acquire implements [locker.Driver].
func (d *driver) Acquire(ctx context.Context, req locker.Request) (locker.Answer, error) {
	a, err := d.Driver.Acquire(ctx, req)
	if req.Wait && !a.Granted && !d.inboxes.refused(req.Key) {
		a.Silent = true
	}
	return a, err
}

// Watch implements [locker.Notifier].
func (d *driver) Watch(ctx context.Context, key string) (locker.Watch, error) {
	return d.inboxes.watch(ctx, key)
}

// giveUp takes the process out of the queue of key.
func (d *driver) giveUp(ctx context.Context, key string) error {
	return d.Run(ctx, giveUpScript, locker.Claim{Key: key}, d.inboxes.name(key))
}

// Close implements [locker.Driver].
func (d *driver) Close() error {
	d.inboxes.close()
	d.signals.Close()
	return d.Driver.Close()
}
