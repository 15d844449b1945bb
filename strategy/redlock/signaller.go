package redlock

import (
	"context"
	"io"

	"github.com/distlock/locker/driver"
)

// listener implements [driver.Listener]. A signal is sent to all nodes that can be reached, a
// majority at least, and heard at a majority: so it is heard once or several times.
type listener struct {
	subscriptions
	c chan driver.Signal
}

// C implements [driver.Listener].
func (l *listener) C() <-chan driver.Signal { return l.c }

// Listen implements [driver.Signaller].
func (d *quorumDriver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	l := &listener{c: make(chan driver.Signal, driver.SignalBuffer)}
	l.d, l.over = d, func() { close(l.c) }
	err := l.open(ctx, func(ctx context.Context, n *node, i int) (io.Closer, error) {
		return n.ListenFunc(ctx, locker, l.heard, func() { l.end(i) })
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *listener) heard(s driver.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.ended {
		return
	}
	select {
	case l.c <- s:
	default: // signals may be lost
	}
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
