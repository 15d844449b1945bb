package strategy

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// Open makes a Locker as cfg says. The func() closes the Locker, and then the clients that Open
// made, but no client that the caller gave. It may be called more than once. Unlock held
// leases before you call it: it closes the connections that Unlock needs, and then only the TTL
// frees their keys.
//
// A cfg that is wrong fails with [locker.ErrInvalid], naming the field, its value
// and the values allowed. Open does not fail if a server does not answer: a
// program may start before its Redis, and Lock retries. ctx bounds
// the look-up of the names of several servers, which takes up to a second. It also bounds what a strategy
// asks its store at the start; the strategies of this module ask nothing.
func Open(ctx context.Context, cfg Config) (*locker.Client, func(), error) {
	return shared.Open(ctx, cfg)
}

// OpenURL is [Open] with a URL and nothing else. The package comment says what
// there is to write in it.
func OpenURL(ctx context.Context, url string) (*locker.Client, func(), error) {
	return shared.OpenURL(ctx, url)
}

// OpenURL is as the function [OpenURL].
func (r *Registry) OpenURL(ctx context.Context, url string) (*locker.Client, func(), error) {
	if url == "" {
		return nil, nil, refuse("url", url, "a URL of the form %s", urlForm)
	}
	return r.Open(ctx, Config{URL: url})
}

// Open is as the function [Open].
func (r *Registry) Open(ctx context.Context, cfg Config) (*locker.Client, func(), error) {
	p, err := r.plan(cfg)
	if err != nil {
		return nil, nil, err
	}
	if p.opener.Nodes != nil {
		if err := checkDistinct(ctx, p.servers, net.DefaultResolver.LookupHost); err != nil {
			return nil, nil, err
		}
	}
	return p.open(ctx)
}

// plan has the steps of Open for a Config that was found right.
type plan struct {
	opener  Opener
	opts    []fieldOption
	given   []redis.UniversalClient // the caller's; else
	servers []server                // those to connect to; else
	url     *url.URL                // where another store is
}

func (r *Registry) plan(c Config) (*plan, error) {
	l, opener, err := r.locate(&c)
	if err != nil {
		return nil, err
	}
	p := &plan{opener: opener}
	if l != nil {
		if err := l.take(&c, "", strings.Fields(lockParams)); err != nil {
			return nil, err
		}
	}
	if p.opts, err = c.lockOptions(r, opener); err != nil {
		return nil, err
	}
	if err := c.checkPlace(r, opener); err != nil {
		return nil, err
	}
	switch many := opener.Nodes != nil; {
	case opener.Other != nil:
		p.url, err = l.other(c.Strategy)
	case c.Client != nil:
		p.given = []redis.UniversalClient{c.Client}
	case len(c.Clients) > 0:
		p.given = slices.Clone(c.Clients)
	case l == nil && many:
		err = p.takeNodes(c.Nodes)
	case l == nil:
		err = p.add(&c, "", "addrs")
	default:
		more, params := l.params["node"], lockParams
		if many {
			delete(l.params, "node")
			params += " node"
		}
		if err = l.fill(&c, "", params); err == nil {
			err = p.add(&c, "", "url's address")
		}
		if err == nil && many {
			err = p.takeMore(&c, more)
		}
	}
	return p, err
}

// add plans a connection to c's deployment. at is the prefix of the names of c's fields,
// place the name of the field with the address.
func (p *plan) add(c *Config, at, place string) error {
	s, err := c.server(at, place)
	if err == nil && p.opener.Nodes != nil && s.single == nil {
		return refuse(at+"url", c.URL, "for one of several servers there are the schemes redis, rediss, unix")
	}
	p.servers = append(p.servers, s)
	return err
}

func (p *plan) open(ctx context.Context) (*locker.Client, func(), error) {
	var undo []func()
	release := sync.OnceFunc(func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	})
	ok := false
	defer func() {
		if !ok { // a panic of an Opener included
			release()
		}
	}()

	rdbs := p.given
	for _, s := range p.servers {
		rdb := s.connect()
		undo = append(undo, func() { _ = rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	l, after, err := p.locker(ctx, rdbs)
	if err != nil {
		return nil, nil, nameField(p.opts, err)
	}
	if after != nil {
		undo = append(undo, after)
	}
	undo = append(undo, func() { _ = l.Close() })
	ok = true
	return l, release, nil
}

func (p *plan) locker(ctx context.Context, rdbs []redis.UniversalClient) (l *locker.Client, after func(), err error) {
	opts := make([]locker.Option, len(p.opts))
	for i, o := range p.opts {
		opts[i] = o.option
	}
	switch {
	case p.opener.Other != nil:
		return p.opener.Other(ctx, p.url, opts...)
	case p.opener.Nodes != nil:
		l, err = p.opener.Nodes(rdbs, opts...)
	default:
		l, err = p.opener.Redis(rdbs[0], opts...)
	}
	return l, nil, err
}
