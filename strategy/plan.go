package strategy

import (
	"fmt"
	"net/url"

	"github.com/distlock/locker"
	"github.com/redis/go-redis/v9"
)

// plan is what Open will do, once a Config has been found right.
type plan struct {
	opener  Opener
	opts    []locker.Option
	given   []redis.UniversalClient // the caller's; else
	servers []server                // those to connect to; else
	url     *url.URL                // where another store is
}

func (r *Registry) plan(cfg Config) (*plan, error) {
	l, opener, err := r.locate(&cfg)
	if err != nil {
		return nil, err
	}
	if l != nil {
		if err := l.setLocks(&cfg); err != nil {
			return nil, err
		}
	}
	p := &plan{opener: opener}
	if p.opts, err = cfg.lockOptions(r, opener); err != nil {
		return nil, err
	}
	switch {
	case opener.Other != nil:
		p.url, err = cfg.otherStore(l)
	case opener.Nodes != nil:
		err = p.manyServers(&cfg, l)
	default:
		err = p.oneServer(r, &cfg, l)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// whereFields say where Redis is, all that documents have.
var whereFields = []string{
	"addrs", "unix_socket", "cluster", "master_name", "db", "nodes",
	"username", "password", "sentinel_username", "sentinel_password", "tls",
}

// excludeClients refuses the connections of the caller.
func (c *Config) excludeClients(client, clients bool, why string) error {
	switch {
	case client && c.Client != nil:
		return refuse("Client", "(given)", "%s", why)
	case clients && len(c.Clients) > 0:
		return refuse("Clients", fmt.Sprintf("(%d given)", len(c.Clients)), "%s", why)
	}
	return nil
}

// oneServer plans for a strategy on one Redis deployment.
func (p *plan) oneServer(r *Registry, c *Config, l *location) error {
	several := func() string {
		return "for a strategy on several servers, not for " + c.Strategy + "; such are " +
			r.those(func(o Opener) bool { return o.Nodes != nil })
	}
	if err := c.excludeClients(false, true, several()); err != nil {
		return err
	}
	if err := exclude(c, "", several(), "nodes"); err != nil {
		return err
	}
	if c.Client != nil {
		if err := exclude(c, "", "not together with Client", append([]string{"url"}, whereFields...)...); err != nil {
			return err
		}
		p.given = []redis.UniversalClient{c.Client}
		return nil
	}
	var s server
	var err error
	switch {
	case l != nil:
		if err := exclude(c, "", "not together with url, which says it", "addrs", "unix_socket", "cluster", "master_name", "db"); err != nil {
			return err
		}
		s, err = c.serverOfURL("", l)
	case len(c.Addrs) == 0 && c.UnixSocket == "":
		return refuse("url", "", "one of url, addrs, unix_socket and Client says where Redis is")
	default:
		s, err = c.serverOfFields("")
	}
	p.servers = []server{s}
	return err
}

// otherStore is the URL for a strategy that is not on Redis.
func (c *Config) otherStore(l *location) (*url.URL, error) {
	why := "for strategies on Redis, not for " + c.Strategy
	if err := c.excludeClients(true, true, why); err != nil {
		return nil, err
	}
	if err := exclude(c, "", why, whereFields...); err != nil {
		return nil, err
	}
	if l == nil {
		return &url.URL{Scheme: c.Strategy}, nil
	}
	u := *l.url
	if u.Scheme = l.scheme; u.Scheme == "" {
		u.Scheme = c.Strategy
	}
	u.RawQuery = l.params.Encode()
	return &u, nil
}
