package redlock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
)

const subscribeBudget = time.Second

// subscriptions holds the subscriptions at all nodes to the same channel.
//
// Lock order: that of a node's notices before mu.
type subscriptions struct {
	d    *quorumDriver
	over func()             // called under mu when a minority of the nodes is left; once
	stop context.CancelFunc // of subscribing

	mu     sync.Mutex
	mute   map[int]bool // nodes that send nothing
	ended  bool         // too many of them; over was called
	closed bool
	subs   []io.Closer
}

// open subscribes at all nodes by listen, and returns when a majority has confirmed.
// Nodes that are slow to subscribe, or down, do so after that.
func (s *subscriptions) open(ctx context.Context, listen func(ctx context.Context, n *node, i int) (io.Closer, error)) error {
	s.mute = make(map[int]bool)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	results := make(chan error, len(s.d.nodes))
	for i := range s.d.nodes {
		s.d.background(func(base context.Context) {
			err := s.at(life, i, listen)
			results <- err
			for pause := 100 * time.Millisecond; err != nil; pause = min(2*pause, time.Second) {
				s.end(i)
				if !bound.Sleep(life, base.Done(), pause) {
					return
				}
				err = s.at(life, i, listen)
			}
		})
	}
	var errs []error
	for confirmed := 0; confirmed < s.d.quorum; {
		select {
		case err := <-results:
			if err == nil {
				confirmed++
				continue
			}
			errs = append(errs, err)
		case <-ctx.Done():
			s.Close()
			return ctx.Err()
		}
		if len(errs) > len(s.d.nodes)-s.d.quorum {
			s.Close()
			return errors.Join(errs...)
		}
	}
	return nil
}

// at subscribes at node i.
func (s *subscriptions) at(ctx context.Context, i int, listen func(ctx context.Context, n *node, i int) (io.Closer, error)) error {
	n := s.d.nodes[i]
	if err := n.usable(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeBudget)
	defer cancel()
	sub, err := listen(ctx, n, i)
	if err != nil {
		return err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.subs = append(s.subs, sub)
		delete(s.mute, i)
	}
	s.mu.Unlock()
	if closed {
		_ = sub.Close()
	}
	return nil
}

// end is called when node i sends nothing, or no more. Without a majority that does, the
// subscriptions are over.
func (s *subscriptions) end(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute[i] = true
	if !s.ended && len(s.mute) > len(s.d.nodes)-s.d.quorum {
		s.ended = true
		s.over()
	}
}

// Close ends the subscriptions.
func (s *subscriptions) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	subs := s.subs
	s.subs = nil
	s.mu.Unlock()
	for _, sub := range subs {
		_ = sub.Close()
	}
}
