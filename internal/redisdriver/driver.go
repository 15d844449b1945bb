package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// minRetention is how long a fencing counter is kept after its lock at least; see [FenceKey].
const minRetention = 10 * time.Minute

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
//	queue      they are no keys of the script, so that it runs while their slot moves
//	tokens     how many to reserve; as usual 1
//	owner      the owner if the caller named one; as usual ""
//	channel    where to tell of a release, and behind it
//	publish    the command for it; as usual PUBLISH to the strategy's prefix and "{lock}"
//
// before those that [Driver.Run] adds. Those at the end that are as usual are left out: most
// commands need no more. Acquire replies
//
//	{1, token, how many are reserved from it on if that is not all}  granted
//	{0, what remains of the holder's lease in ms or -1, 1 if the holder's release
//	gives no wake-up else 0, the holder's owner if known}  refused
//	{-1, type}  the key holds something that is no lock
//
// The others reply 1, or 0 when the claim does not hold the key.
type Protocol struct {
	Name    string
	Acquire *Script
	Renew   *Script
	Release *Script
}

// Driver is a [driver.Driver] made of a Protocol. Strategies embed it.
type Driver struct {
	p       Protocol
	c       *clients
	log     *slog.Logger
	acks    replicaAcks // n 0: none
	signals *Signals    // nil: the strategy has none
	left    leftBehind
	closed  atomic.Bool
}

// closeBudget is how long Close waits for commands that were left behind.
const closeBudget = 700 * time.Millisecond

// NewDriver makes a Driver that uses rdb, and private clients like it.
func NewDriver(rdb redis.UniversalClient, p Protocol) (*Driver, error) {
	c, err := newClients(rdb)
	if err != nil {
		return nil, err
	}
	return &Driver{p: p, c: c, log: slog.New(slog.DiscardHandler)}, nil
}

// Name implements [driver.Driver].
func (d *Driver) Name() string { return d.p.Name }

// Configure implements [driver.Configurer].
func (d *Driver) Configure(cfg driver.Config) (driver.Settings, error) {
	d.log = cfg.Logger
	if _, single := d.c.given.(*redis.Client); single && !d.c.copied {
		d.log.Warn("the caller's connections serve the locks, as the hooks of this version of go-redis cannot be read", "strategy", d.p.Name)
	}
	if _, ring := d.c.given.(*redis.Ring); ring {
		d.log.Warn("a redis.Ring sends the keys of a server that does not answer to another one, which grants their locks a second time; use one server, a cluster, or redlock", "strategy", d.p.Name)
	}
	for _, o := range cfg.Options {
		switch o := o.(type) {
		case replicaAcks:
			if err := o.check(); err != nil {
				return driver.Settings{}, err
			}
			o.grants, o.renewals = d.c.apart(ackPool, 0), d.c.apart(ackPool, 0)
			o.slots = make(chan struct{}, ackPool)
			d.acks = o
		default:
			return driver.Settings{}, fmt.Errorf("locker: %w: %s knows no option %T", locker.ErrInvalid, d.p.Name, o)
		}
	}
	return driver.Settings{}, nil
}

// Acquire implements [driver.Driver]: one round trip, two with [WithReplicaAcks].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.AcquireWith(ctx, req)
}

// AcquireWith is Acquire with further arguments.
func (d *Driver) AcquireWith(ctx context.Context, req driver.Request, args ...any) (driver.Answer, error) {
	f := d.flight(d.p.Acquire, req, args...)
	if err := d.follow(ctx, f); err != nil {
		return driver.Answer{}, err
	}
	if d.acks.n > 0 {
		in := f.in.plain()
		f.run = func() (any, error) { return d.runAcked(ctx, d.p.Acquire, req.Key, in) }
	}
	reply, err := d.send(ctx, &d.c.commands, f)
	if err != nil {
		return driver.Answer{}, err
	}
	return answerOf(reply, req.Tokens)
}

// ReplicaAcks reports whether grants are to be confirmed by replicas.
func (d *Driver) ReplicaAcks() bool { return d.acks.n > 0 }

// Release implements [driver.Driver]: one round trip.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	return d.Run(ctx, d.p.Release, c)
}

// Run runs a script that replies 1, or 0 when c does not hold its key. args are
// appended to its arguments.
func (d *Driver) Run(ctx context.Context, s *Script, c driver.Claim, args ...any) error {
	f := d.flight(s, driver.Request{Claim: c, Fencing: c.Token != 0}, args...)
	if err := d.follow(ctx, f); err != nil {
		return err
	}
	reply, err := d.send(ctx, &d.c.commands, f)
	if err != nil {
		return err
	}
	return verdict(reply)
}

// send sends a command, and returns when it is answered or ctx ends. The flight is over
// then.
func (d *Driver) send(ctx context.Context, all *lanes, f *flight) (reply any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if l := all.one; l != nil && f.run == nil && !d.closed.Load() {
		if done, left, err := l.lone(ctx, f); done {
			return d.settle(ctx, f, left, err)
		}
	}
	l, err := d.start(ctx, all, f)
	if err != nil {
		return nil, err
	}
	return d.await(ctx, l, f)
}

// start puts a command on its way. After Close, and on a client that cannot be copied,
// it goes by itself on the caller's.
func (d *Driver) start(ctx context.Context, all *lanes, f *flight) (l *lane, err error) {
	if !d.closed.Load() {
		if l, err = d.c.lane(ctx, all, f.req.Key); err != nil {
			return nil, classify(err)
		}
	}
	if l == nil && f.run == nil {
		in := f.in.plain()
		f.run = func() (any, error) { return f.script.run(ctx, d.c.given, in) }
	}
	if f.run != nil {
		l = &d.c.aside
	}
	l.start(ctx, f)
	return l, nil
}

func (d *Driver) await(ctx context.Context, l *lane, f *flight) (reply any, err error) {
	left, err := l.await(ctx, f)
	return d.settle(ctx, f, left, err)
}

// settle ends a flight.
func (d *Driver) settle(ctx context.Context, f *flight, left bool, err error) (reply any, _ error) {
	switch {
	case left:
		d.left.add(f)
		return nil, err
	case errors.Is(err, redis.ErrClosed) && d.closed.Load() && f.run == nil: // Close came in between
		l, err := d.start(ctx, nil, f)
		if err != nil {
			return nil, err
		}
		return d.await(ctx, l, f)
	}
	reply = f.reply
	f.free()
	return reply, err
}

// follow waits for commands of a claim that were left behind and that f must not
// overtake: an Acquire, since a release would find nothing yet; and another run
// of s, since counts arrive in order. A release need not wait for other commands, nor
// is a renewal waited for: none sets anything once the claim's holds are gone.
func (d *Driver) follow(ctx context.Context, f *flight) error {
	id, s := f.req.ID, f.script
	return d.left.wait(ctx, func(f *flight) bool {
		return f.req.ID == id && (f.script == d.p.Acquire || f.script == s && s != d.p.Release)
	})
}

func (d *Driver) control() redis.UniversalClient {
	if d.closed.Load() {
		return d.c.given
	}
	return d.c.control
}

// Renew implements [driver.Driver]: one round trip for all, two with [WithReplicaAcks].
func (d *Driver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	if d.acks.n > 0 {
		d.renewAcked(ctx, claims, answer)
		return
	}
	fs, ls := make([]*flight, len(claims)), make([]*lane, len(claims))
	for i, c := range claims {
		if err := ctx.Err(); err != nil {
			answer(i, notSent(err))
			continue
		}
		f := d.flight(d.p.Renew, driver.Request{Claim: c, Fencing: c.Token != 0})
		l, err := d.start(ctx, &d.c.renewals, f)
		if err != nil {
			answer(i, err)
			continue
		}
		fs[i], ls[i] = f, l
	}
	await := func(of []int) {
		for _, i := range of {
			reply, err := d.await(ctx, ls[i], fs[i])
			if err == nil {
				err = verdict(reply)
			}
			answer(i, err)
		}
	}
	groups := d.byServer(ls)
	if len(groups) == 1 {
		await(groups[0])
		return
	}
	var all sync.WaitGroup // a server that hangs holds up no other's answers
	for _, of := range groups {
		all.Go(func() { await(of) })
	}
	all.Wait()
}

// byServer are the indices of the commands to each server; a command that goes by itself may
// be to any. One that was not sent has no lane.
func (d *Driver) byServer(ls []*lane) (groups [][]int) {
	at := make(map[*lane]int)
	for i, l := range ls {
		n, known := at[l]
		switch {
		case l == nil:
		case known && l != &d.c.aside:
			groups[n] = append(groups[n], i)
		default:
			at[l] = len(groups)
			groups = append(groups, []int{i})
		}
	}
	return groups
}

// Shard implements [driver.Sharder]: the slots of a cluster that live on one
// node change, so it is a range of slots that shares a batch.
func (d *Driver) Shard(key string) string {
	if _, ok := d.c.given.(*redis.ClusterClient); !ok {
		return ""
	}
	return fmt.Sprint(Slot(key) / (slots / 16))
}

// Info asks the server about itself.
func (d *Driver) Info(ctx context.Context, section string) (string, error) {
	info, err := d.control().Info(ctx, section).Result()
	return info, classify(err)
}

// Close implements [driver.Driver]. Releases go to the caller's client from now
// on. Commands that were left behind get a moment to be answered.
func (d *Driver) Close() error {
	d.closed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	_ = d.left.wait(ctx, func(*flight) bool { return true })
	for _, c := range []redis.UniversalClient{d.acks.grants, d.acks.renewals} {
		if c != nil {
			_ = c.Close()
		}
	}
	return d.c.close()
}
