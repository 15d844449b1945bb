package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

// minRetention is how long a new fencing counter is kept at least; see [FenceKey].
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
//	owner      the owner if the caller named one, else ""
//	ttl        in ms
//	retention  how long to keep the fencing counter, in ms; 0: no fencing
//	tokens     how many to reserve, 1 or more
//
// before those that More and [Driver.Run] add. Acquire replies
//
//	{1, token, how many are reserved from it on (1 if not said)}  granted
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
	// More gives the further arguments of a script; nil: none. Of req only the Claim
	// is set unless the script acquires.
	More func(s *Script, req driver.Request) []any
	// Late, if not nil, is told of an Acquire that returned after its caller had left.
	Late func(req driver.Request)
}

// Driver is a [driver.Driver] made of a Protocol. Strategies embed it.
type Driver struct {
	p      Protocol
	c      *clients
	log    *slog.Logger
	acks   replicaAcks // n 0: none
	left   leftBehind
	closed atomic.Bool
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
	for _, o := range cfg.Options {
		switch o := o.(type) {
		case replicaAcks:
			if err := o.check(); err != nil {
				return driver.Settings{}, err
			}
			d.acks = o
		default:
			return driver.Settings{}, fmt.Errorf("locker: %w: %s knows no option %T", locker.ErrInvalid, d.p.Name, o)
		}
	}
	return driver.Settings{}, nil
}

// Acquire implements [driver.Driver]: one round trip, two with [WithReplicaAcks].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.acquire(ctx, req, d.input(d.p.Acquire, req))
}

func (d *Driver) acquire(ctx context.Context, req driver.Request, in input) (driver.Answer, error) {
	if err := d.follow(ctx, d.p.Acquire, req.ID); err != nil {
		return driver.Answer{}, err
	}
	f := newFlight(nil)
	f.script, f.claim, f.in = d.p.Acquire, req.ID, in
	if d.p.Late != nil {
		f.late = func() { d.p.Late(req) }
	}
	if d.acks.n > 0 {
		f.run = func() (any, error) { return d.runAcked(ctx, d.p.Acquire, req, in) }
	}
	if err := d.send(ctx, &d.c.commands, req.Key, f); err != nil {
		return driver.Answer{}, err
	}
	return answerOf(f.reply)
}

// Release implements [driver.Driver]: one round trip.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	return d.Run(ctx, d.p.Release, c)
}

// Run runs a script that replies 1, or 0 when c does not hold its key. args are
// appended to its arguments.
func (d *Driver) Run(ctx context.Context, s *Script, c driver.Claim, args ...any) error {
	return d.run(ctx, s, c, append(d.input(s, driver.Request{Claim: c, Fencing: c.Token != 0}), args...))
}

func (d *Driver) run(ctx context.Context, s *Script, c driver.Claim, in input) error {
	if err := d.follow(ctx, s, c.ID); err != nil {
		return err
	}
	f := newFlight(nil)
	f.script, f.claim, f.in = s, c.ID, in
	err := d.send(ctx, &d.c.commands, c.Key, f)
	if errors.Is(err, redis.ErrClosed) && d.closed.Load() { // Close came in between
		err = d.send(ctx, &d.c.commands, c.Key, f)
	}
	if err != nil {
		return err
	}
	return verdict(f.reply)
}

// send sends a command about key, and returns when it is answered or ctx ends.
func (d *Driver) send(ctx context.Context, all *lanes, key string, f *flight) error {
	l, err := d.start(ctx, all, key, f)
	if err != nil {
		return err
	}
	return d.await(ctx, l, f)
}

// start puts a command on its way. After Close, and on a client that cannot be copied,
// it goes by itself on the caller's.
func (d *Driver) start(ctx context.Context, all *lanes, key string, f *flight) (l *lane, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if !d.closed.Load() {
		if l, err = d.c.lane(ctx, all, key); err != nil {
			return nil, classify(err)
		}
	}
	if l == nil && f.run == nil {
		f.run = func() (any, error) { return f.script.run(ctx, d.c.given, f.in) }
	}
	if f.run != nil {
		l = &lane{}
	}
	l.start(f)
	return l, nil
}

func (d *Driver) await(ctx context.Context, l *lane, f *flight) error {
	left, err := l.await(ctx, f)
	if left {
		d.left.add(f)
	}
	return err
}

// follow waits for commands of a claim that were left behind and that a run of s must
// not overtake: an Acquire, since a release would find nothing yet; and another run
// of s, since counts arrive in order. A release need not wait for other commands, nor
// is a renewal waited for: none sets anything once the claim's holds are gone.
func (d *Driver) follow(ctx context.Context, s *Script, claim string) error {
	return d.left.wait(ctx, func(f *flight) bool {
		return f.claim == claim && (f.script == d.p.Acquire || f.script == s && s != d.p.Release)
	})
}

func (d *Driver) control() redis.UniversalClient {
	if d.closed.Load() {
		return d.c.given
	}
	return d.c.control
}

// Renew implements [driver.Driver]: one round trip for all.
func (d *Driver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	fs, ls := make([]*flight, len(claims)), make([]*lane, len(claims))
	for i, c := range claims {
		f := newFlight(nil)
		f.script, f.claim, f.in = d.p.Renew, c.ID, d.input(d.p.Renew, driver.Request{Claim: c, Fencing: c.Token != 0})
		l, err := d.start(ctx, &d.c.renewals, c.Key, f)
		if err != nil {
			answer(i, err)
			continue
		}
		fs[i], ls[i] = f, l
	}
	for i, f := range fs {
		if f == nil {
			continue
		}
		err := d.await(ctx, ls[i], f)
		if err == nil {
			err = verdict(f.reply)
		}
		answer(i, err)
	}
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
	return d.c.close()
}

// input makes the command for a script, with room for a few more arguments.
func (d *Driver) input(s *Script, req driver.Request) input {
	in := make(input, inputHead, inputHead+len(s.keys)+len(s.argv)+4)
	for i, name := range s.keys {
		switch {
		case name == "lock":
			in = append(in, req.Key)
		case name != "fence":
			in = append(in, AuxKey("locker:"+name+":", req.Key))
		case req.Fencing || i < len(s.keys)-1:
			// (While a slot moves, its nodes refuse a command with a key that is there
			// and one that is not: none is named in vain.)
			in = append(in, FenceKey(req.Key))
		}
	}
	in[inputHead-1] = len(in) - inputHead
	for _, name := range s.argv {
		switch name {
		case "claim":
			in = append(in, req.ID)
		case "owner":
			in = append(in, nameOf(req.Claim))
		case "ttl":
			in = append(in, req.TTL.Milliseconds())
		case "retention":
			in = append(in, retentionOf(req))
		case "tokens":
			in = append(in, max(req.Tokens, 1))
		}
	}
	if d.p.More != nil {
		in = append(in, d.p.More(s, req)...)
	}
	return in
}

// nameOf is the name that the caller gave the owner; "" if it gave none.
func nameOf(c driver.Claim) string {
	if c.Owner == c.ID {
		return ""
	}
	return c.Owner
}

func retentionOf(req driver.Request) int64 {
	if !req.Fencing {
		return 0
	}
	return max(2*req.TTL, minRetention).Milliseconds()
}

// Call is a script with its keys and arguments, made once for all Drivers of a
// quorum: they have the same scripts, and nothing More.
type Call struct {
	s   *Script
	req driver.Request
	in  input
}

// NewAcquire makes the Call of what Acquire sends.
func (d *Driver) NewAcquire(req driver.Request) *Call {
	return &Call{d.p.Acquire, req, d.input(d.p.Acquire, req)}
}

// NewCall makes a Call of what Run sends.
func (d *Driver) NewCall(s *Script, c driver.Claim, args ...any) *Call {
	return &Call{s, driver.Request{Claim: c}, append(d.input(s, driver.Request{Claim: c, Fencing: c.Token != 0}), args...)}
}

// AcquireBy is Acquire with a Call.
func (d *Driver) AcquireBy(ctx context.Context, c *Call) (driver.Answer, error) {
	return d.acquire(ctx, c.req, slices.Clone(c.in))
}

// RunCall is Run with a Call, and further arguments of this Driver's own.
func (d *Driver) RunCall(ctx context.Context, c *Call, args ...any) error {
	return d.run(ctx, c.s, c.req.Claim, append(append(make(input, 0, len(c.in)+len(args)), c.in...), args...))
}
