package redispubsub

import (
	"context"
	"io"
)

// Plain is one of the channels of a key that are neither sharded nor named after our rules, such as those of
// keyspace notifications: each server publishes there what is about its own keys.
type Plain struct {
	Key, Channel string
	Message      func(payload string) // as for Listen
	Ended        func()
}

// ListenPlain begins to listen on all of them, each at the server of its key, and returns when the servers have
// confirmed them. On a cluster the Channels must not be sharded; see SetSharded.
func (c *Channels) ListenPlain(ctx context.Context, all []Plain) (_ []io.Closer, err error) {
	type pending struct {
		*listener
		sub   *subscription
		ready <-chan struct{}
	}
	var begun []pending
	defer func() {
		if err != nil {
			for _, l := range begun {
				_ = l.Close()
			}
		}
	}()
	for _, p := range all {
		s, err := c.subscriber(ctx, p.Key, false)
		if err != nil {
			return nil, err
		}
		l := &listener{s: s, channel: p.Channel, message: p.Message, ended: p.Ended}
		sub, ready, err := s.add(l)
		if err != nil {
			return nil, err
		}
		begun = append(begun, pending{l, sub, ready})
	}
	closers := make([]io.Closer, len(begun))
	for i, l := range begun {
		if err := l.s.confirmed(ctx, l.listener, l.sub, l.ready); err != nil {
			return nil, err
		}
		closers[i] = l.listener
	}
	return closers, nil
}

// Moved returns the keys that are at another server of the cluster by now than the one that their closers of ListenPlain are
// for, as far as the client knows; for the next time it asks the cluster.
func (c *Channels) Moved(ctx context.Context, closers map[string]io.Closer) (moved []string) {
	for key, closer := range closers {
		client, err := c.conn.Node(ctx, key)
		if l, ok := closer.(*listener); ok && err == nil && client != l.s.client {
			moved = append(moved, key)
		}
	}
	if cluster := c.conn.Cluster(); cluster != nil {
		cluster.ReloadState(ctx)
	}
	return moved
}
