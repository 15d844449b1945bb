package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
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
	d       *driver
	name    string
	signals *redisdriver.Signals

	mu        sync.Mutex
	down      error // why it is skipped; nil: it is up
	probing   bool
	nextProbe time.Time
	runID     string // of the server, once known
}

var errSkipped = errors.New("skipped")

// usable says whether to send something to n, and looks after n if not.
func (n *node) usable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down == nil {
		return nil
	}
	if now := time.Now(); !n.probing && now.After(n.nextProbe) {
		n.probing = true
		n.nextProbe = now.Add(probeEvery)
		n.d.background(n.probe)
	}
	return fmt.Errorf("%w until it answers again: %w", errSkipped, n.down)
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
	if err == nil {
		n.down = nil
	}
}

// heard notes what became of a command.
func (n *node) heard(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if isAway(err) {
		if n.down == nil {
			n.nextProbe = time.Now().Add(probeEvery)
		}
		n.down = err
	}
}

// isAway tells trouble of the node or the way to it from that of our own pool or
// of the caller.
func isAway(err error) bool {
	var ne net.Error
	var op *net.OpError
	return errors.As(err, &op) || errors.As(err, &ne) && ne.Timeout() && !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// identify asks the server who it is: the same one twice is no quorum. A server
// that may not be asked is believed to be another one.
func (n *node) identify(ctx context.Context) error {
	info, err := n.Info(ctx, "server")
	var refused redis.Error
	if errors.As(err, &refused) {
		info, err = "", nil
	}
	if err != nil {
		return err
	}
	id := "unknown"
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "run_id:"); ok {
			id = strings.TrimSpace(v)
		}
	}
	n.mu.Lock()
	n.runID = id
	n.mu.Unlock()
	return n.d.checkDistinct()
}

// ready identifies n before its first command.
func (n *node) ready(ctx context.Context) error {
	n.mu.Lock()
	known := n.runID != ""
	n.mu.Unlock()
	if known {
		return nil
	}
	err := n.identify(ctx)
	n.heard(err)
	return err
}

// checkDistinct refuses a quorum that has a server twice.
func (d *driver) checkDistinct() error {
	seen := make(map[string]*node)
	for _, n := range d.nodes {
		n.mu.Lock()
		id := n.runID
		n.mu.Unlock()
		if id == "" || id == "unknown" {
			continue
		}
		if other := seen[id]; other != nil {
			return &locker.StoreError{
				Err:       fmt.Errorf("locker: %w: nodes %s and %s are the same Redis server; each node must be an independent master", locker.ErrInvalid, other.name, n.name),
				Permanent: true, NotApplied: true,
			}
		}
		seen[id] = n
	}
	return nil
}

func nodeName(i int, rdb redis.UniversalClient) string {
	if c, ok := rdb.(*redis.Client); ok {
		return c.Options().Addr
	}
	return fmt.Sprintf("#%d", i+1)
}
