package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redispubsub"
	"github.com/redis/go-redis/v9"
)

// Protocol is a strategy: its name and its scripts. A script gets the keys that its
// head names, in that order,
//
//	lock    the lock key
//	fence   its fencing counter; as the last key only with fencing
//	others  AuxKey("locker:<name>:", key)
//
// and of these arguments
//
//	claim      the claim id
//	ttl        in ms
//	retention  how long to keep the fencing counter, in ms; 0: no fencing
//	fence      the key of its fencing counter, and queue, AuxKey("locker:queue:", key), where
//	queue      they are no keys of the script, so that it runs while their slot moves; turns and
//	           places are as queue is; permits, AuxKey("locker:permits:", key), if the caller has waited
//	tokens     how many to reserve; 1 by default
//	owner      the owner if the caller named one; "" by default
//	weight     how many permits, and of how many
//	limit
//	waited     for how long the caller has waited, in ms; "" if it does not wait
//	channel    where to publish a release, and behind it
//	publish    the command for it; PUBLISH by default, to the strategy's prefix and "{lock}"
//
// before those that [Driver.Run] adds. Trailing arguments that have their defaults are left
// out: most commands need no more. Acquire replies
//
//	{1, token, how many are reserved from it on if that is not all}  granted
//	{0, what remains of the holder's lease in ms or -1, 1 if the holder's release
//	gives no wake-up else 0, the holder's owner if known, 1 if it was told}  refused
//	{-1, type}  the key holds something that is no lock
//
// The others reply 1, or 0 when the claim does not hold the key. Release may reply 1 and how many
// subscribers the release was sent to.
type Protocol struct {
	Name    string
	Acquire *redisconn.Script
	// AcquireInCluster is Acquire made with [InCluster].
	AcquireInCluster *redisconn.Script
	Renew            *redisconn.Script
	Release          *redisconn.Script
	Layouts          []Layout // of all locks that Inspect recognises

	// The scripts of permits, where waiters have an order of their own; nil: the scripts that order waiters by bids.
	AcquirePermits          *redisconn.Script
	AcquirePermitsInCluster *redisconn.Script
	ReleasePermits          *redisconn.Script
}

// Driver is a [driver.Driver] made of a Protocol. Strategies embed it.
type Driver struct {
	p        Protocol
	user     redis.UniversalClient
	conn     *redisconn.Conn
	log      *slog.Logger
	acks     replicaAcks
	channels *redispubsub.Channels // of releases; nil: the strategy has none
	signals  signals
}

// NewDriver makes a Driver that uses rdb, and private clients like it.
func NewDriver(rdb redis.UniversalClient, p Protocol) (*Driver, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("locker: %w: the Redis client is nil", locker.ErrInvalid)
	}
	if p.AcquirePermits == nil {
		p.AcquirePermits, p.AcquirePermitsInCluster, p.ReleasePermits = acquirePermits, acquirePermitsInCluster, releasePermits
	}
	d := &Driver{p: p, user: rdb, conn: redisconn.Open(rdb), log: slog.New(slog.DiscardHandler)}
	if d.IsCluster() && p.AcquireInCluster != nil {
		d.p.Acquire, d.p.AcquirePermits = p.AcquireInCluster, p.AcquirePermitsInCluster
	}
	return d, nil
}

// NewChannels makes the channels of releases, which begin with prefix.
func (d *Driver) NewChannels(prefix string) *redispubsub.Channels {
	d.channels = redispubsub.New(d.conn, prefix)
	return d.channels
}

// Open makes a Locker of a strategy's driver, and closes the driver if that fails.
func Open(d driver.Driver, opts []locker.Option) (*locker.Client, error) {
	l, err := locker.New(d, opts...)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return l, nil
}

// Name implements [driver.Driver].
func (d *Driver) Name() string { return d.p.Name }

// Configure implements [driver.Configurer].
func (d *Driver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.log = cfg.Logger
	switch d.user.(type) {
	case *redis.Client:
		if !d.conn.Owned() {
			d.log.Warn("the caller's connections serve the locks, as the hooks of this version of go-redis cannot be read", "strategy", d.p.Name)
		}
	case *redis.Ring:
		d.log.Warn("a redis.Ring sends the keys of a server that does not answer to another one, which grants their locks a second time; use one server, a cluster, or redlock", "strategy", d.p.Name)
	}
	for _, o := range cfg.Options {
		acks, ok := o.(replicaAcks)
		if !ok {
			return driver.Settings{}, fmt.Errorf("locker: %w: %s knows no option %T", locker.ErrInvalid, d.p.Name, o)
		}
		if err := acks.check(); err != nil {
			return driver.Settings{}, err
		}
		d.acks = acks.on(d.conn)
	}
	return driver.Settings{NamesHolders: true}, nil
}

// Acquire implements [driver.Driver]: one round trip, two with [WithReplicaAcks].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.AcquireWith(ctx, req)
}

// AcquireWith is Acquire with further arguments.
func (d *Driver) AcquireWith(ctx context.Context, req driver.Request, args ...any) (driver.Answer, error) {
	script := d.p.Acquire
	if req.Limit > 0 {
		script = d.p.AcquirePermits
	}
	c := d.command(script, req, args...)
	do := d.conn.Do
	if d.acks.n > 0 {
		do = d.acks.grants.Do
	}
	reply, err := d.do(ctx, c, do)
	if err != nil {
		return driver.Answer{}, err
	}
	if req.Limit > 0 {
		return permitsAnswer(reply, req.Tokens)
	}
	return answerOf(reply, req.Tokens)
}

// ReplicaAcks reports whether grants are to be confirmed by replicas.
func (d *Driver) ReplicaAcks() bool { return d.acks.n > 0 }

// Release implements [driver.Driver]: one round trip.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	script := d.p.Release
	if c.Limit > 0 {
		script = d.p.ReleasePermits
	}
	_, err := d.run(ctx, script, c)
	return err
}

// Run runs a script that replies 1, or 0 when c does not hold its key. args are
// appended to its arguments.
func (d *Driver) Run(ctx context.Context, s *redisconn.Script, c driver.Claim, args ...any) error {
	_, err := d.run(ctx, s, c, args...)
	return err
}

// ReleaseLock releases a lock, and returns how many subscribers the release was sent to.
func (d *Driver) ReleaseLock(ctx context.Context, c driver.Claim) (listeners int, err error) {
	return d.run(ctx, d.p.Release, c)
}

// run runs a script, and returns the reply less 1.
func (d *Driver) run(ctx context.Context, s *redisconn.Script, c driver.Claim, args ...any) (int, error) {
	cmd := d.command(s, driver.Request{Claim: c, Fencing: c.Token != 0}, args...)
	reply, err := d.do(ctx, cmd, d.conn.Do)
	if err != nil {
		return 0, err
	}
	return listeners(reply)
}

// do sends a command behind abandoned commands of its claim that it must not overtake.
func (d *Driver) do(ctx context.Context, c *command, send func(context.Context, *redisconn.Command) (any, error)) (any, error) {
	if err := d.awaitEarlier(ctx, c); err != nil {
		return nil, err
	}
	reply, err := send(ctx, &c.Command)
	c.free()
	if err != nil {
		return nil, storeError(err)
	}
	return reply, nil
}

// awaitEarlier waits for the abandoned commands of c's claim that c must not overtake:
//
//	Acquire   waits for Acquire
//	Release   waits for Acquire: it would find nothing yet
//	SetHolds  waits for Acquire and SetHolds: counts arrive in order
//
// Nothing waits for a Release or a Renew: neither sets anything once the claim's holds are
// gone. Renew waits for nothing.
func (d *Driver) awaitEarlier(ctx context.Context, c *command) error {
	err := d.conn.AwaitAbandoned(ctx, func(earlier *redisconn.Command) bool {
		return earlier.Group == c.Group &&
			(earlier.Script == d.p.Acquire || earlier.Script == d.p.AcquirePermits ||
				earlier.Script == c.Script && c.Script != d.p.Release && c.Script != d.p.ReleasePermits)
	})
	if err != nil {
		return &driver.StoreError{Err: fmt.Errorf("it was not sent: an earlier command of the claim is unanswered: %w", err), NotApplied: true}
	}
	return nil
}

// Renew implements [driver.Driver]: one round trip for all, two with [WithReplicaAcks].
func (d *Driver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	own, cmds := make([]*command, len(claims)), make([]*redisconn.Command, len(claims))
	for i, c := range claims {
		script := d.p.Renew
		if c.Limit > 0 {
			script = renewPermits
		}
		own[i] = d.command(script, driver.Request{Claim: c, Fencing: c.Token != 0})
		own[i].Urgent = true
		cmds[i] = &own[i].Command
	}
	send := d.conn.DoAll
	if d.acks.n > 0 {
		send = d.acks.renewals.DoAll
	}
	send(ctx, cmds, func(i int, reply any, err error) {
		own[i].free()
		if err == nil {
			err = verdict(reply)
		}
		answer(i, storeError(err))
	})
}

// Shard implements [driver.Sharder]: the slots of a cluster that live on one
// node change, so it is a range of slots that shares a batch.
func (d *Driver) Shard(key string) string {
	if !d.IsCluster() {
		return ""
	}
	return fmt.Sprint(redisconn.Slot(key) / (redisconn.Slots / 16))
}

// IsCluster reports whether the keys are spread over a cluster.
func (d *Driver) IsCluster() bool { return d.conn.Cluster() != nil }

// Node returns the address of the cluster node that has key; "" where there is but one.
func (d *Driver) Node(ctx context.Context, key string) (string, error) {
	if !d.IsCluster() {
		return "", nil
	}
	node, err := d.conn.Node(ctx, key)
	if err != nil {
		return "", storeError(err)
	}
	return node.Options().Addr, nil
}

// Info asks the server about itself.
func (d *Driver) Info(ctx context.Context, section string) (string, error) {
	info, err := d.conn.Info(ctx, section)
	return info, storeError(err)
}

// Blocking is a [redisconn.Blocking] whose errors are a driver's.
type Blocking struct{ *redisconn.Blocking }

// NewBlocking makes a client for commands that block for a slice of time each; it returns nil
// if the user's client cannot be copied.
func (d *Driver) NewBlocking(slice time.Duration) *Blocking {
	if b := d.conn.NewBlocking(slice); b != nil {
		return &Blocking{b}
	}
	return nil
}

// Pop is [redisconn.Blocking.Pop].
func (b *Blocking) Pop(ctx context.Context, list string, many bool) ([]string, error) {
	elements, err := b.Blocking.Pop(ctx, list, many)
	return elements, storeError(err)
}

// Close implements [driver.Driver]. Releases go to the user's client from now on.
func (d *Driver) Close() error {
	d.signals.close()
	err := d.conn.Close()
	d.acks.close()
	return err
}

// storeError makes a driver's error of one of redisconn.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	var e *redisconn.Error // on the heap
	if !errors.As(err, &e) {
		return err
	}
	return &driver.StoreError{Err: e.Err, Permanent: e.Permanent, NotApplied: e.NotApplied}
}

// FenceKey returns the name of the fencing counter of a lock key. No lock key begins with
// "locker:", as all auxiliary keys and channels do.
func FenceKey(key string) string { return redisconn.AuxKey("locker:fence:", key) }
