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

// minRetention is how long a fencing counter is kept at least, from its first
// use; see [FenceKey].
const minRetention = 10 * time.Minute

// Protocol is a strategy: its name and its scripts. Each script gets
//
//	KEYS[1] the lock key
//	KEYS[2] its fencing counter; the lock key instead for a script that does not
//	        name it, for Acquire and Renew without fencing, and for Renew unless
//	        the caller named an owner
//	ARGV[1] the claim id
//	ARGV[2] the owner; the claim id unless the caller named one
//	ARGV[3] the TTL in ms
//	ARGV[4] how long to keep a new fencing counter, in ms; 0: no fencing
//
// and what More adds. Acquire replies {1, token} when granted, {0, what is left
// of the holder's lease in ms or -1, 1 if the holder's release sends no signal
// else 0} when not, {-1, type} when the key holds something that is no lock. The
// others reply 1, or 0 when the claim does not hold the key.
type Protocol struct {
	Name    string
	Acquire *Script
	Renew   *Script
	Release *Script
	// More gives the further keys and arguments of a script; nil: none. Of
	// req only the Claim is set unless the script acquires.
	More func(s *Script, req driver.Request) (keys []string, args []any)
	// Batched lets commands that come while others are under way share round trips.
	// One that is slow delays the others with it.
	Batched bool
}

// Driver is a [driver.Driver] made of a Protocol. Strategies embed it.
type Driver struct {
	p      Protocol
	c      *clients
	log    *slog.Logger
	acks   replicaAcks // n 0: none
	closed atomic.Bool
}

// NewDriver makes a Driver that uses rdb, and private clients like it.
func NewDriver(rdb redis.UniversalClient, p Protocol) (*Driver, error) {
	c, err := newClients(rdb)
	if err != nil {
		return nil, err
	}
	if p.Batched {
		c.batch()
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

// Acquire implements [driver.Driver]: one round trip on the caller's client, two
// with [WithReplicaAcks].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return d.acquire(ctx, req, d.input(d.p.Acquire, req))
}

func (d *Driver) acquire(ctx context.Context, req driver.Request, in input) (driver.Answer, error) {
	var reply any
	var err error
	if d.acks.n > 0 {
		reply, err = d.runAcked(ctx, d.p.Acquire, req, in)
	} else {
		reply, err = d.p.Acquire.run(ctx, d.c.acquire, in)
	}
	if err != nil {
		return driver.Answer{}, err
	}
	return answerOf(reply)
}

// answerOf reads the reply of an Acquire script; see [Protocol].
func answerOf(reply any) (driver.Answer, error) {
	r, _ := reply.([]any)
	if len(r) < 2 {
		return driver.Answer{}, unexpected(reply)
	}
	switch r[0] {
	case int64(1):
		if token, ok := r[1].(int64); ok {
			return driver.Answer{Granted: true, Token: token}, nil
		}
	case int64(0):
		if left, ok := r[1].(int64); ok && len(r) > 2 {
			return driver.Answer{Remaining: remaining(left), NoWakeUp: r[2] == int64(1)}, nil
		}
	case int64(-1):
		return driver.Answer{}, fmt.Errorf("%w: it is a %v; it is left alone", locker.ErrConflict, r[1])
	}
	return driver.Answer{}, unexpected(reply)
}

// Release implements [driver.Driver]: one round trip on the private client, or
// after Close on the caller's.
func (d *Driver) Release(ctx context.Context, c driver.Claim) error {
	return d.Run(ctx, d.p.Release, c)
}

// Run runs a script that replies 1, or 0 when c does not hold its key. args are
// appended to its arguments.
func (d *Driver) Run(ctx context.Context, s *Script, c driver.Claim, args ...any) error {
	return d.run(ctx, s, append(d.input(s, driver.Request{Claim: c, Fencing: c.Token != 0}), args...))
}

func (d *Driver) run(ctx context.Context, s *Script, in input) error {
	reply, err := s.run(ctx, d.runs(), in)
	if errors.Is(err, redis.ErrClosed) && d.closed.Load() {
		// Close came in between.
		reply, err = s.run(ctx, d.c.given, in)
	}
	if err != nil {
		return err
	}
	return verdict(reply)
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
	_, _ = pipe.Exec(ctx) // each command has its own error
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
// on.
func (d *Driver) Close() error {
	d.closed.Store(true)
	return d.c.close()
}

// input makes the command for a script, with room for a few more arguments.
func (d *Driver) input(s *Script, req driver.Request) input {
	ttl, retention := req.TTL.Milliseconds(), int64(0)
	if req.Fencing {
		retention = max(2*ttl, minRetention.Milliseconds())
	}
	// While a slot moves, its nodes refuse a command with a key that is there and
	// one that is not: it must not suffer for a counter that it does not use.
	fence := req.Key
	switch s {
	case d.p.Acquire:
		if req.Fencing {
			fence = FenceKey(req.Key)
		}
	case d.p.Renew:
		if req.Fencing && req.ID != req.Owner {
			fence = FenceKey(req.Key)
		}
	default:
		if s.fenced {
			fence = FenceKey(req.Key)
		}
	}
	var keys []string
	var args []any
	if d.p.More != nil {
		keys, args = d.p.More(s, req)
	}
	in := make(input, inputHead, inputHead+6+len(keys)+len(args)+4)
	in[inputHead-1] = 2 + len(keys)
	in = append(in, req.Key, fence)
	for _, k := range keys {
		in = append(in, k)
	}
	in = append(in, req.ID, req.Owner, ttl, retention)
	return append(in, args...)
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
	return d.run(ctx, c.s, append(append(make(input, 0, len(c.in)+len(args)), c.in...), args...))
}

// remaining is what PTTL says is left, rounded up; 0 for a key that never expires.
func remaining(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return time.Duration(pttl+1) * time.Millisecond
}

func verdict(reply any) error {
	switch reply {
	case int64(1):
		return nil
	case int64(0):
		return errLost
	}
	return unexpected(reply)
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", locker.ErrLost)

func unexpected(reply any) error {
	return &driver.StoreError{Err: fmt.Errorf("unexpected reply %v of a script", reply), Permanent: true}
}
