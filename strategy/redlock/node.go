package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/redispubsub"
	"github.com/redis/go-redis/v9"
)

const (
	// probeEvery is how often a node that is skipped is looked at, while the Locker is
	// in use.
	probeEvery = 300 * time.Millisecond
	quiet      = time.Second     // after so much silence it is probed, too
	calm       = time.Second     // after so much time without trouble it is reported as well
	connecting = 5 * time.Second // for the first connection, whatever a command may take
)

// node is one of the masters. One that did not answer in time is down: it is
// skipped, so that it costs its timeout once, and probed in the background until
// it answers.
type node struct {
	*redisdriver.Driver
	d        *quorumDriver
	name     string
	channels *redispubsub.Channels
	known    atomic.Bool // the server has said who it is

	underWay atomic.Int32 // commands, and those that wait for their claim's turn
	troubled atomic.Bool  // that was logged
	missed   atomic.Int64 // releases, since that was last logged
	seen     atomic.Int64 // when it last answered, or was looked at, as UnixNano

	mu        sync.Mutex
	since     time.Time     // of what was logged last
	bad       time.Time     // when there was trouble last
	calming   bool          // calmed is to be called
	down      error         // why it is skipped; nil: it is up
	probed    chan struct{} // closed at the end of the probe; nil: there is none
	found     error         // by the last probe
	nextProbe time.Time
}

var (
	errSkipped = errors.New("skipped until it answers again")
	errLags    = &driver.StoreError{Err: errors.New("skipped until it has answered earlier commands"), NotApplied: true}
)

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
	now := time.Now()
	if n.probed != nil || now.Before(n.nextProbe) {
		return
	}
	n.nextProbe = now.Add(probeEvery)
	if n.d.background(n.probe) {
		n.probed = make(chan struct{})
	}
}

// lookIfQuiet looks after a node that is not needed, so that its user knows in time.
func (n *node) lookIfQuiet() {
	if time.Since(time.Unix(0, n.seen.Load())) > quiet {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.look()
	}
}

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down != nil
}

func (n *node) probe(ctx context.Context) {
	most := n.d.nodeTimeout(locker.DefaultTTL)
	if !n.known.Load() {
		most = max(most, connecting)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := n.identify(ctx)
	n.seen.Store(time.Now().UnixNano())
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.probed)
	n.probed, n.found = nil, err
	switch {
	case err == nil:
		n.down = nil
	case isAway(err):
		n.skip(err)
	}
}

// skip marks n as down. Called under n.mu.
func (n *node) skip(why error) {
	n.down = &driver.StoreError{Err: fmt.Errorf("%w: %w", errSkipped, why), NotApplied: true}
	n.bad = time.Now()
	n.tell(why)
}

// tell reports that n is in trouble, and why, or well again: when it changes, not for each
// command. Called under n.mu.
func (n *node) tell(trouble error) {
	if n.troubled.Load() == (trouble != nil) {
		return
	}
	n.troubled.Store(trouble != nil)
	n.since = time.Now()
	n.d.nodeChanged(n.name, trouble)
	if missed := n.missed.Swap(0); missed > 1 {
		n.d.log.Warn("keys of released locks stay on a node until their TTLs end", "strategy", n.d.Name(), "node", n.name, "keys", missed)
	}
}

// answered notes an answer that n has given to a command. One that was sent before n was
// noted to be in trouble, or out of it, says nothing new. Only one that took a lock says
// that n is of use again: a server that is out of memory goes on renewing.
func (n *node) answered(sent time.Time, kind opKind, a answer) {
	n.seen.Store(time.Now().UnixNano())
	took, limit := time.Since(sent), n.d.nodeTimeout(locker.DefaultTTL)/2
	var trouble error
	switch {
	case a.err != nil:
		trouble = a.err
	case took >= limit:
		trouble = fmt.Errorf("it takes %v for a command", took.Round(time.Millisecond))
	case a.state != yes || kind != opAcquire && kind != opJoin || took >= limit/2:
		return
	}
	if trouble == nil && !n.troubled.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case sent.Before(n.since):
	case trouble != nil:
		n.bad = time.Now()
		n.tell(trouble)
	case !n.calming:
		n.calming = true
		time.AfterFunc(calm, n.calmed)
	}
}

// calmed reports that n is well if there was no trouble since a command took a lock there.
func (n *node) calmed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calming = false; time.Since(n.bad) >= calm && !n.d.isClosed() {
		n.tell(nil)
	}
}

// missedRelease notes that a key stays on n though it was released. The first one since n
// has changed is logged, and then their number.
func (n *node) missedRelease(key string) {
	if n.missed.Add(1) == 1 {
		n.d.log.Warn("the key of a released lock stays on a node until its TTL ends", "strategy", n.d.Name(), "node", n.name, "key", key)
	}
}

// call runs f, which sends one command under ctx, and draws conclusions about the node from the answer or the silence.
// A short silence may be the caller's doing, and a node that has answered since a connection broke may be well again: a
// probe decides. (A probe also decides if the node seems to be down because the caller uses up the connections.)
func (n *node) call(ctx context.Context, kind opKind, f func() answer) answer {
	sent := time.Now()
	a := f()
	end, ends := ctx.Deadline()
	cut := ctx.Err() != nil || ends && !time.Now().Before(end)
	var refined *driver.StoreError
	switch {
	case a.err == nil, errors.As(a.err, &refined) && refined.Permanent:
		n.answered(sent, kind, a)
	case cut && time.Since(sent) < n.d.nodeTimeout(locker.DefaultTTL)/2, isBroken(a.err) && n.seen.Load() > sent.UnixNano():
		n.mu.Lock()
		defer n.mu.Unlock()
		n.look()
	case isAway(a.err):
		n.mu.Lock()
		defer n.mu.Unlock()
		n.skip(a.err)
		n.look()
	}
	return a
}

// isAway reports whether err is trouble of the node or the way to it, or silence.
func isAway(err error) bool { return isBroken(err) || isSilence(err) }

// isBroken reports whether err is trouble with a connection, other than silence.
func isBroken(err error) bool {
	var op *net.OpError
	return !isSilence(err) && (errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout))
}

func isSilence(err error) bool {
	var timeout net.Error // a context's end is one, too
	return errors.As(err, &timeout) && timeout.Timeout()
}
