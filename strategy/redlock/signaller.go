package redlock

import (
	"context"
	"io"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
)

// listener implements [driver.Listener]. A signal is sent to all nodes that can be reached, a
// majority at least, and heard at a majority: so it is heard once or several times.
//
// A node that breaks a lock sends a signal about its part within the same command. When a majority has sent one, the
// listener passes on one SignalBroken, and the holder asks the nodes: a round trip earlier than after the signal that the sender
// sends when its Break has returned. Before that a question does harm: the majority that has the lock still would
// answer yes, and the hold would be brought back to the nodes that have broken it.
type listener struct {
	subscriptions
	c      chan driver.Signal
	broken map[driver.Signal]map[int]bool // the nodes that have broken their part; guarded by mu
}

// C implements [driver.Listener].
func (l *listener) C() <-chan driver.Signal { return l.c }

// Listen implements [driver.Signaller].
func (d *quorumDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	l := &listener{c: make(chan driver.Signal, driver.SignalBuffer), broken: make(map[driver.Signal]map[int]bool)}
	l.d, l.over = d, func() { close(l.c) }
	err := l.open(ctx, func(ctx context.Context, n *node, i int) (io.Closer, error) {
		return n.ListenFunc(ctx, locker, func(s driver.Signal) { l.heard(i, s) }, func() { l.end(i) })
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// heard passes on a signal from node i.
func (l *listener) heard(i int, s driver.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.ended {
		return
	}
	if s.Kind == redisdriver.SignalPart {
		if !l.isBroken(i, s) {
			return
		}
		s.Kind = driver.SignalBroken
	}
	select {
	case l.c <- s:
	default: // signals may be lost
	}
}

// isBroken notes that node i has broken its part, and reports whether that makes a majority. Whoever may publish can
// send any number of parts: those that are the first of their claim when SignalBuffer claims are known replace all of
// these, which are broken by now, or lose a signal. It needs l.mu.
func (l *listener) isBroken(i int, s driver.Signal) bool {
	nodes := l.broken[s]
	if nodes == nil {
		if len(l.broken) >= driver.SignalBuffer {
			clear(l.broken)
		}
		nodes = make(map[int]bool)
		l.broken[s] = nodes
	}
	nodes[i] = true
	if !l.d.majority(len(nodes)) {
		return false
	}
	delete(l.broken, s) // what the other nodes send makes no majority
	return true
}

// Signal implements [driver.Signaller]: one round trip to all nodes. It returns when a majority
// has the signal.
func (d *quorumDriver) Signal(ctx context.Context, s driver.Signal) error {
	_, err := poll(ctx, d, majorityIsEnough, func(ctx context.Context, n *node) (struct{}, error) {
		ctx, cancel := d.briefly(context.WithoutCancel(ctx)) // the others get it, too
		defer cancel()
		return struct{}{}, n.Signal(ctx, s)
	})
	return err
}

func majorityIsEnough([]struct{}) bool { return true }
