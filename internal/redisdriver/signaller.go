package redisdriver

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redispubsub"
	"github.com/redis/go-redis/v9"
)

// signalPrefix begins the channels of Lockers, which end with the Locker's UUID as a hash tag: on
// a cluster with sharded pub/sub it decides the server.
const signalPrefix = "locker:claims:"

// SignalPart says that one of several servers has taken the claim away. The strategy counts the servers: a Locker that asked
// after the first of them would find its lock on the others, and bring it back. Versions before this one ignore it.
const SignalPart driver.SignalKind = 'p'

// signals are the channels of Lockers. A strategy that has no channels of releases gets its own
// connection for them, with the first signal or Listen.
type signals struct {
	mu       sync.Mutex
	channels *redispubsub.Channels // nil: not needed yet
	own      bool                  // nobody else closes them
	closed   bool
}

// of returns the channels of Lockers.
func (s *signals) of(d *Driver) (*redispubsub.Channels, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, &driver.StoreError{Err: redis.ErrClosed, NotApplied: true}
	case s.channels != nil:
	case d.channels != nil:
		s.channels = d.channels.With(signalPrefix)
	default:
		s.channels, s.own = redispubsub.New(d.conn, signalPrefix), true
	}
	return s.channels, nil
}

func (s *signals) close() {
	s.mu.Lock()
	s.closed = true
	channels, own := s.channels, s.own
	s.mu.Unlock()
	if own {
		channels.Close()
	}
}

// Listen implements [driver.Signaller].
func (d *Driver) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	c := make(chan driver.Signal, driver.SignalBuffer)
	closer, err := d.ListenFunc(ctx, locker, func(s driver.Signal) {
		select {
		case c <- s:
		default: // signals may be lost
		}
	}, func() { close(c) })
	if err != nil {
		return nil, err
	}
	return &listener{closer, c}, nil
}

// ListenFunc is Listen with functions that are called for a signal, and when no more can come.
// Neither may block.
func (d *Driver) ListenFunc(ctx context.Context, locker string, heard func(driver.Signal), ended func()) (io.Closer, error) {
	channels, err := d.signals.of(d)
	if err != nil {
		return nil, err
	}
	closer, err := channels.Listen(ctx, locker, func(payload string) {
		if s, ok := driver.ParseSignal(payload); ok { // "": some may have been missed
			heard(s)
		}
	}, ended)
	if redisconn.IsRefusal(err) {
		err = &driver.StoreError{Err: err, Permanent: true, NotApplied: true}
	}
	return closer, err
}

// Signal implements [driver.Signaller]: one round trip.
func (d *Driver) Signal(ctx context.Context, s driver.Signal) error {
	locker, ok := driver.LockerOf(s.Claim)
	if !ok {
		return fmt.Errorf("%w: %.80q is no claim's id", driver.ErrInvalid, s.Claim)
	}
	channels, err := d.signals.of(d)
	if err != nil {
		return err
	}
	return storeError(channels.Publish(ctx, locker, s.String()))
}

// listener implements [driver.Listener].
type listener struct {
	closer io.Closer
	c      chan driver.Signal
}

func (l *listener) C() <-chan driver.Signal { return l.c }

func (l *listener) Close() { _ = l.closer.Close() }
