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
	// More gives the further arguments of a script; nil: none. Of req only the Claim
	// is set unless the script acquires.
	More func(s *Script, req driver.Request) []any
	// Batched lets commands that come while others are under way share round trips.
	// One that is slow delays the others with it. Its contexts end by their deadlines
	// only: commands run on the caller's goroutine.
	Batched bool
}

// Driver is a [driver.Driver] made of a Protocol. Strategies embed it.
type Driver struct {
	p      Protocol
	c      *clients
	log    *slog.Logger
	acks   replicaAcks // n 0: none
	runner runner
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
	if p.Batched {
		c.batch()
	}
	return &Driver{p: p, c: c, log: slog.New(slog.DiscardHandler), runner: runner{inline: p.Batched}}, nil
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

// Acquire implements [driver.Driver]: one round trip on the caller's client, two
// with [WithReplicaAcks].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.AcquireWith(ctx, req)
}

// AcquireWith is Acquire with further arguments.
func (d *Driver) AcquireWith(ctx context.Context, req driver.Request, args ...any) (driver.Answer, error) {
	return d.acquire(ctx, req, append(d.input(d.p.Acquire, req), args...))
}

// ReplicaAcks reports whether grants are to be confirmed by replicas.
func (d *Driver) ReplicaAcks() bool { return d.acks.n > 0 }

func (d *Driver) acquire(ctx context.Context, req driver.Request, in input) (driver.Answer, error) {
	if err := d.follow(ctx, d.p.Acquire, req.ID); err != nil {
		return driver.Answer{}, err
	}
	reply, err := d.runner.do(ctx, d.p.Acquire, req.ID, nil, func() (any, error) {
		if d.acks.n > 0 {
			return d.runAcked(ctx, d.p.Acquire, req, in)
		}
		return d.p.Acquire.run(ctx, d.c.acquire, in)
	})
	if err != nil {
		return driver.Answer{}, err
	}
	return answerOf(reply, req.Tokens)
}

// Release implements [driver.Driver]: one round trip on the private client, or
// after Close on the caller's.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	return d.Run(ctx, d.p.Release, c)
}

// Run runs a script that replies 1, or 0 when c does not hold its key. args are
// appended to its arguments.
func (d *Driver) Run(ctx context.Context, s *Script, c driver.Claim, args ...any) error {
	return d.run(ctx, s, c.ID, append(d.input(s, driver.Request{Claim: c, Fencing: c.Token != 0}), args...))
}

func (d *Driver) run(ctx context.Context, s *Script, claim string, in input) error {
	if err := d.follow(ctx, s, claim); err != nil {
		return err
	}
	reply, err := d.runner.do(ctx, s, claim, nil, func() (any, error) {
		on := d.runs()
		reply, err := s.run(ctx, on, in)
		if errors.Is(err, redis.ErrClosed) && d.closed.Load() {
			// Close came in between.
			return s.run(ctx, d.c.given, in)
		}
		return reply, d.c.ended(on, err)
	})
	if err != nil {
		return err
	}
	return verdict(reply)
}

// follow waits for commands of a claim that were left behind and that a run of s must
// not overtake: an Acquire, since a release would find nothing yet; and another run
// of s, since counts arrive in order. A release need not wait for other commands, nor
// is a renewal waited for: none sets anything once the claim's holds are gone.
func (d *Driver) follow(ctx context.Context, s *Script, claim string) error {
	return d.runner.wait(ctx, func(fl *flight) bool {
		return fl.claim == claim && (fl.script == d.p.Acquire || fl.script == s && s != d.p.Release)
	})
}

func (d *Driver) control() redis.UniversalClient {
	if d.closed.Load() {
		return d.c.given
	}
	return d.c.control
}

// runs is control for scripts.
func (d *Driver) runs() processor {
	if d.closed.Load() {
		return d.c.given
	}
	return d.c.runs
}

// Renew implements [driver.Driver]: one pipeline.
func (d *Driver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	all := make([]int, len(claims))
	for i := range all {
		all[i] = i
	}
	unknown := d.renew(ctx, claims, all, d.p.Renew.bySHA, answer)
	if len(unknown) == 0 {
		return
	}
	// The server has forgotten the script. One in full teaches it again.
	unknown = d.renew(ctx, claims, unknown[:1], d.p.Renew.bySource, answer, unknown[1:]...)
	unknown = d.renew(ctx, claims, unknown, d.p.Renew.bySHA, answer)
	// On a cluster, one did not teach all nodes.
	d.renew(ctx, claims, unknown, d.p.Renew.bySource, answer)
}

// renew sends the renewals of claims[i] for each i of which, answers for those
// that ran, and returns rest and those for which the server lacked the script.
func (d *Driver) renew(ctx context.Context, claims []driver.Claim, which []int,
	cmd func(context.Context, input) noRetry, answer func(int, error), rest ...int) (unknown []int) {
	if len(which) == 0 {
		return rest
	}
	pipe := d.control().Pipeline()
	cmds := make([]noRetry, len(which))
	for n, i := range which {
		cmds[n] = cmd(ctx, d.input(d.p.Renew, driver.Request{Claim: claims[i], Fencing: claims[i].Token != 0}))
		_ = pipe.Process(ctx, cmds[n])
	}
	_, left := d.runner.do(ctx, d.p.Renew, "", nil, func() (any, error) {
		_, _ = pipe.Exec(ctx) // each command has its own error
		return nil, nil
	})
	if left != nil {
		for _, i := range slices.Concat(which, rest) {
			answer(i, left)
		}
		return nil
	}
	for n, i := range which {
		switch err := cmds[n].Err(); {
		case isNoScript(err):
			unknown = append(unknown, i)
		case err != nil:
			relearn(d.c.control, err)
			answer(i, classify(err))
		default:
			answer(i, verdict(cmds[n].Val()))
		}
	}
	return append(unknown, rest...)
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
	d.runner.close(closeBudget)
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
	return d.run(ctx, c.s, c.req.ID, append(append(make(input, 0, len(c.in)+len(args)), c.in...), args...))
}
