package strategy

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// manyServers plans for a strategy that has a quorum of independent servers.
func (p *plan) manyServers(c *Config, l *location) error {
	if err := c.excludeClients(true, false, "strategy "+c.Strategy+" is on several servers: Clients"); err != nil {
		return err
	}
	if err := exclude(c, "", "strategy "+c.Strategy+" is on several independent servers: nodes",
		"addrs", "unix_socket", "cluster", "master_name", "db", "sentinel_username", "sentinel_password"); err != nil {
		return err
	}
	switch {
	case len(c.Clients) > 0:
		if err := exclude(c, "", "not together with Clients", append([]string{"url"}, whereFields...)...); err != nil {
			return err
		}
		return p.takeClients(c.Clients)
	case l != nil:
		if err := exclude(c, "", "not together with url, where nodes are parameters", "nodes"); err != nil {
			return err
		}
		return p.nodesOfURL(c, l)
	}
	if err := exclude(c, "", "given for each of the nodes", "username", "password", "tls"); err != nil {
		return err
	}
	for i, n := range c.Nodes {
		if err := p.addNode(c.Strategy, fmt.Sprintf("nodes[%d]", i), n); err != nil {
			return err
		}
	}
	return checkQuorum("nodes", len(c.Nodes))
}

func (p *plan) takeClients(clients []redis.UniversalClient) error {
	for i, rdb := range clients {
		switch {
		case rdb == nil:
			return refuse(fmt.Sprintf("Clients[%d]", i), "nil", "a client")
		case reflect.ValueOf(rdb).Comparable() && slices.Contains(clients[:i], rdb):
			return refuse(fmt.Sprintf("Clients[%d]", i), "(given)", "a client of another server than those before it")
		}
	}
	p.given = slices.Clone(clients)
	return checkQuorum("Clients", len(clients))
}

func checkQuorum(field string, n int) error {
	if n < 3 || n%2 == 0 {
		return refuse(field, fmt.Sprintf("(%d given)", n), "an odd number of them, at least 3")
	}
	return nil
}

// nodesOfURL plans for a URL that names one node as its host and the others in
// parameters; they share the rest of it.
func (p *plan) nodesOfURL(c *Config, l *location) error {
	more := l.params["node"]
	delete(l.params, "node")
	l.known = append(slices.Clone(l.known), "node")
	for i := range 1 + len(more) {
		one := *l
		at := *l.url
		one.url, one.params = &at, make(url.Values)
		for name, values := range l.params {
			one.params[name] = slices.Clone(values)
		}
		field := "url"
		if i > 0 {
			field = "node"
			scheme := transports[l.scheme]
			if scheme.base == "unix" {
				at.Path, at.RawPath = more[i-1], ""
			} else if host, err := hostPort(field, more[i-1], scheme.port); err != nil {
				return err
			} else {
				at.Host = host
			}
		}
		if err := p.addURL(c, "", &one, field); err != nil {
			return err
		}
	}
	return checkQuorum("node", 1+len(more))
}

func (p *plan) addNode(strategy, at string, n Node) error {
	c := Config{Strategy: strategy, UnixSocket: n.UnixSocket, DB: n.DB, Username: n.Username, Password: n.Password, TLS: n.TLS}
	if n.Addr != "" {
		addr, err := hostPort(at+".addr", n.Addr, "6379")
		if err != nil {
			return err
		}
		c.Addrs = []string{addr}
	}
	at += "."
	switch {
	case n.URL != "":
		if err := exclude(n, at, "not together with url, which says it", "addr", "unix_socket", "db"); err != nil {
			return err
		}
		l, err := parseLocation(at+"url", n.URL)
		if err != nil {
			return err
		}
		return p.addURL(&c, at, l, at+"url")
	case n.Addr == "" && n.UnixSocket == "":
		return refuse(strings.TrimSuffix(at, "."), n, "one of url, addr and unix_socket says where it is")
	case n.Addr != "" && n.UnixSocket != "":
		return refuse(at+"addr", n.Addr, "not together with unix_socket")
	}
	s, err := c.serverOfFields(at)
	if err != nil {
		return err
	}
	return p.add(s, at+"addr", n.Addr+n.UnixSocket)
}

func (p *plan) addURL(c *Config, at string, l *location, field string) error {
	if scheme, ok := transports[l.scheme]; ok && scheme.base != l.scheme {
		return l.refuse("scheme %q; for one of several servers there are redis, rediss, unix", l.scheme)
	}
	s, err := c.serverOfURL(at, l)
	if err != nil {
		return err
	}
	return p.add(s, field, s.single.Addr)
}

// add refuses a server that is there already: one vote would count twice.
func (p *plan) add(s server, field, addr string) error {
	for _, other := range p.servers {
		if other.id() == s.id() {
			return refuse(field, addr, "a server of its own for each node; this one is there already")
		}
	}
	p.servers = append(p.servers, s)
	return nil
}
