package hashreentrant

import (
	"context"
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/hashlock"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/turns"
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

// pubsubDriver adds wake-ups by pub/sub to the hash lock, and takes turns with the processes that
// they reach.
type pubsubDriver struct {
	hashlock.Driver
	redisdriver.PermitKeeper
	turns turns.Turns
}

// turnsMark is in the ids of Lockers that take turns, as turnsDigits: behind the version of our ids, which is 8. A random UUID, of
// Java for one, has version 4.
const turnsMark, turnsDigits = 0x7a1, "87a1-"

// takesTurns reports whether the Locker whose claim has that id takes turns.
func takesTurns(id string) bool {
	const at = len("01234567-0123-")
	return len(id) > at && strings.HasPrefix(id[at:], turnsDigits)
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
// for its commands, and one for subscriptions while a caller waits.
// New fails with [locker.ErrInvalid] on a nil client or bad options. It accepts a *redis.Ring with a warning to the
// Logger: a Ring can grant a lock twice.
func New(rdb redis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := newDriver(rdb)
	if err != nil {
		return nil, err
	}
	return redisdriver.Open(d, opts)
}

func newDriver(rdb redis.UniversalClient) (*pubsubDriver, error) {
	d, err := hashlock.NewDriver(rdb, protocol)
	return &pubsubDriver{Driver: d, PermitKeeper: redisdriver.NewPermitKeeper(d.Driver)}, err
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
	s, err := d.Driver.Configure(cfg)
	s.IDMark = turnsMark
	return s, err
}

// Acquire implements [driver.Driver]. Where the caller waits if refused, and other processes wait, too,
// the attempt awaits its turn.
func (d *pubsubDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if !req.Waits || req.Limit > 0 || req.Owner != req.ID { // an owner may join a hold of its own
		return d.Driver.Acquire(ctx, req)
	}
	if err := d.turns.Await(ctx, req.Key); err != nil {
		return driver.Answer{}, &driver.StoreError{Err: err, NotApplied: true}
	}
	a, err := d.Driver.Acquire(ctx, req)
	switch {
	case err != nil:
	case a.Granted:
		d.turns.Granted(req.Key)
	default:
		d.turns.Refused(req.Key, takesTurns(a.Owner))
	}
	return a, err
}

// Release implements [driver.Driver].
func (d *pubsubDriver) Release(ctx context.Context, c driver.Claim) error {
	if c.Limit > 0 {
		return d.Driver.Release(ctx, c)
	}
	d.turns.Releasing(c.Key)
	listeners, err := d.ReleaseLock(ctx, c)
	if err == nil {
		d.turns.Released(c.Key, listeners)
	}
	return err
}

// Watch implements [driver.Notifier].
func (d *pubsubDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := d.turns.Watch(key)
	listener, err := d.Channels.Listen(ctx, key, func(message string) { w.Heard(message == "") }, w.End)
	if err != nil {
		w.Close()
		return nil, err
	}
	return &watch{w, listener}, nil
}

// watch is a Watch that ends with its subscription.
type watch struct {
	*turns.Watch
	listener io.Closer
}

// Close implements [driver.Watch].
func (w *watch) Close() {
	_ = w.listener.Close()
	w.Watch.Close()
}
