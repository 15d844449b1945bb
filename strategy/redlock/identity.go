package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/redis/go-redis/v9"
)

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

// ready returns when n has said who it is, which takes a connection first: it may take
// longer than ctx, and is there for the next command then.
func (n *node) ready(ctx context.Context) error {
	if n.known.Load() {
		return nil
	}
	n.mu.Lock()
	n.nextProbe = time.Time{}
	n.look()
	probed := n.probed
	n.mu.Unlock()
	if probed == nil {
		return &driver.StoreError{Err: n.d.base.Err(), NotApplied: true} // closed
	}
	var err error
	select {
	case <-probed:
		n.mu.Lock()
		err = n.found
		n.mu.Unlock()
	case <-ctx.Done():
		err = fmt.Errorf("connecting: %w", ctx.Err())
	}
	if err == nil {
		return nil
	}
	return &driver.StoreError{Err: err, NotApplied: true}
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
			err := fmt.Errorf("%w: nodes %s and %s are the same Redis server; each node must be an independent master", locker.ErrInvalid, other.name, n.name)
			ids.same = &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
		}
		seen[id] = n
	}
}

// twice refuses a quorum that has a server twice. (Each node has said who it is before it
// answers anything else, so a majority of answers is of servers that are known.) They
// are asked again next time: the way to them may have been put right.
func (ids *identities) twice(nodes []*node) error {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.same != nil {
		for _, n := range nodes {
			n.known.Store(false)
		}
	}
	return ids.same
}
