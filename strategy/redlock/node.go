package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/redis/go-redis/v9"
)

// probeEvery is how often a node that is skipped is looked at, while the Locker is
// in use.
const probeEvery = 300 * time.Millisecond

// node is one of the masters. One that did not answer in time is down: it is
// skipped, so that it costs its timeout once, and probed in the background until
// it answers.
type node struct {
	*redisdriver.Driver
	d       *quorumDriver
	name    string
	signals *redisdriver.Signals
	known   atomic.Bool // the server has said who it is

	mu        sync.Mutex
	down      error         // why it is skipped; nil: it is up
	back      chan struct{} // closed when it is up again; nil when it is up
	probing   bool
	nextProbe time.Time
}

var errSkipped = errors.New("skipped until it answers again")

// usable says whether to send something to n, and looks after n if not.
func (n *node) usable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down != nil {
		n.look()
	}
	return n.down
}

// look begins a probe if it is time for one. Called under n.mu.
func (n *node) look() {
	if now := time.Now(); !n.probing && now.After(n.nextProbe) {
		n.probing = true
		n.nextProbe = now.Add(probeEvery)
		n.d.background(n.probe)
	}
}

// await returns when n is up, or with the error of ctx.
func (n *node) await(ctx context.Context) error {
	for {
		n.mu.Lock()
		back := n.back
		if back != nil {
			n.look()
		}
		n.mu.Unlock()
		if back == nil {
			return nil
		}
		timer := time.NewTimer(probeEvery)
		select {
		case <-back:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down != nil
}

func (n *node) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.d.nodeTimeout(locker.DefaultTTL))
	defer cancel()
	err := n.identify(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probing = false
	switch {
	case err == nil && n.down != nil:
		n.down = nil
		close(n.back)
		n.back = nil
	case isAway(err):
		n.skip(err)
	}
}

// skip marks n as down. Called under n.mu.
func (n *node) skip(why error) {
	n.down = &driver.StoreError{Err: fmt.Errorf("%w: %w", errSkipped, why), NotApplied: true}
	if n.back == nil {
		n.back = make(chan struct{})
	}
}

// heard notes what became of a command. If that it got no answer was our own doing
// after all (the caller uses up the connections), the probe that follows at once
// brings the node back.
func (n *node) heard(err error) {
	if !isAway(err) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.skip(err)
	n.look()
}

// call runs f, which sends one command under ctx, and notes what the answer, or that
// there was none, says about the node. Of silence too short to tell, the probe makes
// certain.
func (n *node) call(ctx context.Context, f func() answer) answer {
	sent := time.Now()
	a := f()
	switch {
	case a.err == nil:
	case ctx.Err() == nil || time.Since(sent) >= n.d.nodeTimeout(locker.DefaultTTL)/2:
		n.heard(a.err)
	default:
		n.mu.Lock()
		n.look()
		n.mu.Unlock()
	}
	return a
}

// isAway tells trouble of the node or the way to it, and silence.
func isAway(err error) bool {
	var op *net.OpError
	var timeout net.Error // a context's end is one, too
	return errors.As(err, &op) || errors.As(err, &timeout) && timeout.Timeout() ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout)
}

// identify asks the server who it is: the same one twice is no quorum. A server
// that may not be asked is believed to be another one.
func (n *node) identify(ctx context.Context) error {
	info, err := n.Info(ctx, "server")
	var server redis.Error
	var refined *driver.StoreError
	refused := errors.As(err, &server) && errors.As(err, &refined) && refined.Permanent
	if err != nil && !refused {
		return err
	}
	id := ""
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "run_id:"); ok {
			id = strings.TrimSpace(v)
		}
	}
	n.d.identified(n, id)
	n.known.Store(true)
	return nil
}

// ready identifies n before its first command.
func (n *node) ready(ctx context.Context) error {
	if n.known.Load() {
		return nil
	}
	if err := n.identify(ctx); err != nil {
		n.heard(err)
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return nil
}

// acquaint returns when all nodes have said who they are, so that not even the first
// attempt takes a server that is there twice for two; or a majority has, and the others
// were given a moment. They are asked again before their first command.
func (d *quorumDriver) acquaint(ctx context.Context) error {
	d.first.Do(func() { d.background(d.introduce) })
	select {
	case <-d.acquainted:
		return nil
	case <-ctx.Done():
		return &driver.StoreError{Err: ctx.Err(), NotApplied: true}
	case <-d.base.Done(): // closed
		return &driver.StoreError{Err: d.base.Err(), NotApplied: true}
	}
}

// introduction is how long the first attempt waits for a minority to say who they are.
const introduction = 20 * time.Millisecond

func (d *quorumDriver) introduce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.nodeTimeout(locker.DefaultTTL))
	defer cancel()
	said := make(chan error, len(d.nodes))
	for _, n := range d.nodes {
		go func() { said <- n.ready(ctx) }()
	}
	var acquainted sync.Once
	done := func() { acquainted.Do(func() { close(d.acquainted) }) }
	defer done()
	known := 0
	for range d.nodes {
		if <-said == nil {
			known++
		}
		if known == d.quorum {
			// The others are not much further away, or not there.
			timer := time.AfterFunc(introduction, done)
			defer timer.Stop()
		}
	}
}

// identities knows the servers behind the nodes.
type identities struct {
	mu     sync.Mutex
	runIDs map[*node]string // "" for one that may not be asked
	same   error            // if two are the same
}

func (d *quorumDriver) identified(n *node, runID string) {
	ids := &d.ids
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.runIDs[n] = runID
	ids.same = nil
	seen := make(map[string]*node)
	for _, n := range d.nodes {
		id := ids.runIDs[n]
		if id == "" {
			continue
		}
		if other := seen[id]; other != nil {
			err := fmt.Errorf("locker: %w: nodes %s and %s are the same Redis server; each node must be an independent master", locker.ErrInvalid, other.name, n.name)
			ids.same = &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
		}
		seen[id] = n
	}
}

// referee is the node that contenders ask first; -1 if there is none. They may know the
// nodes in different orders and by different names, so it is the one with the least
// run id of those that are up.
func (d *quorumDriver) referee() int {
	d.ids.mu.Lock()
	defer d.ids.mu.Unlock()
	best, least := -1, ""
	for i, n := range d.nodes {
		if id := d.ids.runIDs[n]; id != "" && (best < 0 || id < least) && !n.isDown() {
			best, least = i, id
		}
	}
	return best
}

// checkDistinct refuses a quorum that has a server twice. The servers are asked
// again next time: the way to them may have been put right.
func (d *quorumDriver) checkDistinct() error {
	d.ids.mu.Lock()
	defer d.ids.mu.Unlock()
	if d.ids.same != nil {
		for _, n := range d.nodes {
			n.known.Store(false)
		}
	}
	return d.ids.same
}
