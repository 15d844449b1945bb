package strategy

import (
	"context"
	"slices"
	"sync"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// Open makes a Locker as cfg says. The func() closes it and then the clients Open
// made, never one the caller gave; it may be called more than once. Unlock
// held leases before: afterwards the connections to do it with are gone, and
// only the TTL frees their keys.
//
// A cfg that is wrong fails with [locker.ErrInvalid], naming the field, its value
// and what is allowed. A server that does not answer is no reason to fail: a
// program may start before its Redis, and a Lock rides that out. ctx is for
// strategies that have to ask their store something at the start; those of
// this module do not.
func Open(ctx context.Context, cfg Config) (locker.Locker, func(), error) {
	return shared.Open(ctx, cfg)
}

// OpenURL is [Open] with a URL and nothing else. The package comment says what
// there is to write in it.
func OpenURL(ctx context.Context, url string) (locker.Locker, func(), error) {
	return shared.OpenURL(ctx, url)
}

// OpenURL is as the function [OpenURL].
func (r *Registry) OpenURL(ctx context.Context, url string) (locker.Locker, func(), error) {
	if url == "" {
		return nil, nil, refuse("url", url, "a URL of the form %s", urlForm)
	}
	return r.Open(ctx, Config{URL: url})
}

// Open is as the function [Open].
func (r *Registry) Open(ctx context.Context, cfg Config) (locker.Locker, func(), error) {
	p, err := r.plan(cfg)
	if err != nil {
		return nil, nil, err
	}
	return p.open(ctx)
}

func (p *plan) open(ctx context.Context) (locker.Locker, func(), error) {
	var release cleanUp
	ok := false
	defer func() {
		if !ok { // a panic of somebody's Opener included
			release.run()
		}
	}()

	rdbs := slices.Clone(p.given)
	for _, s := range p.servers {
		rdb, err := s.connect()
		if err != nil {
			return nil, nil, err
		}
		release.add(func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	l, err := p.locker(ctx, rdbs, &release)
	if err != nil {
		return nil, nil, err
	}
	release.add(func() { _ = l.Close() })
	ok = true
	return l, sync.OnceFunc(release.run), nil
}

func (p *plan) locker(ctx context.Context, rdbs []redis.UniversalClient, release *cleanUp) (locker.Locker, error) {
	switch {
	case p.opener.Other != nil:
		l, after, err := p.opener.Other(ctx, p.url, p.opts...)
		if err == nil && after != nil {
			release.add(after)
		}
		return l, err
	case p.opener.Nodes != nil:
		return p.opener.Nodes(rdbs, p.opts...)
	}
	return p.opener.Redis(rdbs[0], p.opts...)
}

// cleanUp undoes in reverse what was done.
type cleanUp []func()

func (c *cleanUp) add(f func()) { *c = append(*c, f) }

func (c *cleanUp) run() {
	for _, f := range slices.Backward(*c) {
		f()
	}
}
