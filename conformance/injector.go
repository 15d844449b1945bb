package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Injector is [Faults] between a Locker and its driver, in the process. With any store, commands
// and replies get lost, arrive twice or late, or the store seems to be gone. [OfDriver] puts one
// around each driver. What only the wire can show (a connection that breaks in the middle of a
// reply, a pool that is used up, a cache of scripts) needs a proxy, such as package faultproxy
// for Redis's protocol.
//
// The zero Injector is ready for use.
type Injector struct {
	mu      sync.Mutex
	next    map[Op][]fault
	sent    map[Op]int
	state   storeState
	slow    time.Duration
	changed chan struct{} // closed when state changes
	watches map[*injectedWatch]struct{}
	listens map[*injectedListener]struct{}
	broken  []string // what drivers did that no driver may do; see breach
}

// fault describes what happens to one command.
type fault struct {
	lost  bool // it takes no effect
	mute  bool // its reply is lost
	twice bool
	late  time.Duration // its reply is
}

type storeState int

const (
	reachable storeState = iota
	refusing
	silent
)

var (
	errCut     = errors.New("injected fault: the connection broke")
	errRefused = &driver.StoreError{Err: errors.New("injected fault: connection refused"), NotApplied: true}
)

// Wrap puts the faults around d. The driver returned implements [driver.Notifier],
// [driver.HoldCounter] and [driver.PermitKeeper] if d does; it always has the other optional
// interfaces. Where d lacks one, the driver returned behaves as a driver without it does.
func (in *Injector) Wrap(d driver.Driver) driver.Driver {
	i := injected{d, in}
	n, notifies := d.(driver.Notifier)
	c, counts := d.(driver.HoldCounter)
	if k, keeps := d.(driver.PermitKeeper); keeps {
		return in.wrapKeeper(injectedKeeper{i, k}, n, c)
	}
	switch {
	case notifies && counts:
		return struct {
			injected
			injectedNotifier
			injectedCounter
		}{i, injectedNotifier{n, in}, injectedCounter{c, in}}
	case notifies:
		return struct {
			injected
			injectedNotifier
		}{i, injectedNotifier{n, in}}
	case counts:
		return struct {
			injected
			injectedCounter
		}{i, injectedCounter{c, in}}
	}
	return i
}

func (in *Injector) arm(op Op, f fault) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.next == nil {
		in.next = make(map[Op][]fault)
	}
	in.next[op] = append(in.next[op], f)
	return nil
}

// LoseCommand implements [Faults].
func (in *Injector) LoseCommand(op Op) error { return in.arm(op, fault{lost: true, mute: true}) }

// LoseReply implements [Faults].
func (in *Injector) LoseReply(op Op) error { return in.arm(op, fault{mute: true}) }

// Repeat implements [Faults].
func (in *Injector) Repeat(op Op) error { return in.arm(op, fault{twice: true}) }

// DelayReply implements [Faults].
func (in *Injector) DelayReply(op Op, d time.Duration) error { return in.arm(op, fault{late: d}) }

// Refuse implements [Faults].
func (in *Injector) Refuse() error { return in.become(refusing) }

// BlackHole implements [Faults].
func (in *Injector) BlackHole() error { return in.become(silent) }

// Slow implements [Faults].
func (in *Injector) Slow(d time.Duration) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.slow = d
	return nil
}

// Sent implements [Faults].
func (in *Injector) Sent(op Op) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.sent[op]
}

// Heal implements [Faults].
func (in *Injector) Heal() error {
	in.mu.Lock()
	clear(in.next)
	in.slow = 0
	in.mu.Unlock()
	return in.become(reachable)
}

// ForgetScripts implements [Faults]: there are none.
func (in *Injector) ForgetScripts() error { return nil }

// CutNotifications implements [Faults]: each Watch ends, and each Listener.
func (in *Injector) CutNotifications() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for w := range in.watches {
		w.end()
	}
	clear(in.watches)
	for l := range in.listens {
		l.end()
	}
	clear(in.listens)
	return nil
}

func (in *Injector) become(s storeState) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.state = s
	if in.changed != nil {
		close(in.changed)
	}
	in.changed = make(chan struct{})
	return nil
}

// Command lets send reach the store, unless a fault of in loses the command. A command whose reply is lost
// is applied, also if ctx ends. Command is for a harness that puts the faults
// elsewhere than around its drivers.
func (in *Injector) Command(ctx context.Context, op Op, send func(ctx context.Context) error) error {
	return in.take(op).run(ctx, send)
}

// fate describes what becomes of one command.
type fate struct {
	fault
	state   storeState
	changed <-chan struct{} // closed when that state ends
}

// take takes the next fault of op, if the store can be reached.
func (in *Injector) take(op Op) fate {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sent == nil {
		in.sent = make(map[Op]int)
	}
	in.sent[op]++
	f := fate{state: in.state, changed: in.changed}
	if q := in.next[op]; f.state == reachable && len(q) > 0 {
		f.fault, in.next[op] = q[0], q[1:]
	}
	f.late += in.slow
	return f
}

// isNone reports whether the command is to be sent as if there were no Injector.
func (f fate) isNone() bool { return f.state == reachable && f.fault == fault{} }

func (f fate) run(ctx context.Context, send func(ctx context.Context) error) error {
	switch {
	case f.isNone():
		return send(ctx)
	case f.state == refusing:
		return errRefused
	case f.state == silent:
		select {
		case <-f.changed:
			return errCut
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var err error
	if !f.lost {
		applied := context.WithoutCancel(ctx)
		err = send(applied)
		if f.twice {
			err = send(applied)
		}
	}
	if f.mute {
		return errCut
	}
	timer := time.NewTimer(f.late)
	defer timer.Stop()
	select {
	case <-timer.C:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// injected is a driver with an Injector around it.
type injected struct {
	inner driver.Driver
	in    *Injector
}

func (d injected) Name() string { return d.inner.Name() }
func (d injected) Close() error { return d.inner.Close() }

func (d injected) Configure(c driver.Config) (driver.Settings, error) {
	if configurer, ok := d.inner.(driver.Configurer); ok {
		return configurer.Configure(c)
	}
	if len(c.Options) > 0 {
		return driver.Settings{}, fmt.Errorf("%w: %s takes no driver options", locker.ErrInvalid, d.inner.Name())
	}
	return driver.Settings{}, nil
}

func (d injected) Shard(key string) string {
	if s, ok := d.inner.(driver.Sharder); ok {
		return s.Shard(key)
	}
	return ""
}

func (d injected) Nodes(c driver.Claim) (have, of int) {
	if n, ok := d.inner.(driver.NodeCounter); ok {
		return n.Nodes(c)
	}
	return 0, 0
}

func (d injected) Acquire(ctx context.Context, req driver.Request) (a driver.Answer, err error) {
	err = d.in.Command(ctx, OpAcquire, func(ctx context.Context) (err error) {
		a, err = d.inner.Acquire(ctx, req)
		return err
	})
	if err != nil {
		return driver.Answer{}, err
	}
	return a, nil
}

func (d injected) Release(ctx context.Context, c driver.Claim) error {
	return d.in.Command(ctx, OpRelease, func(ctx context.Context) error { return d.inner.Release(ctx, c) })
}

type injectedCounter struct {
	inner driver.HoldCounter
	in    *Injector
}

func (d injectedCounter) SetHolds(ctx context.Context, c driver.Claim, n int) error {
	return d.in.Command(ctx, OpSetHolds, func(ctx context.Context) error { return d.inner.SetHolds(ctx, c, n) })
}
