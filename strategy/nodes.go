package strategy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// manyServers plans for a strategy that has a quorum of independent servers. How
// many there must be is for the strategy to say.
func (p *plan) manyServers(c *Config, l *location) error {
	if err := exclude(*c, "", "strategy "+c.Strategy+" is on several independent servers: nodes", "addrs", "unix_socket", "cluster",
		"master_name", "db", "sentinel_username", "sentinel_password", "sentinel_password_file"); err != nil {
		return err
	}
	if l != nil {
		if err := exclude(*c, "", "not together with url, where nodes are parameters", "nodes"); err != nil {
			return err
		}
		return p.nodesOfURL(c, l)
	}
	if err := exclude(*c, "", "given for each of the nodes", "username", "password", "password_file", "tls"); err != nil {
		return err
	}
	for i, n := range c.Nodes {
		if err := p.addNode(n, fmt.Sprintf("nodes[%d]", i), c.Strategy); err != nil {
			return err
		}
	}
	return nil
}

// nodesOfURL plans for a URL that names one node as its host and the others in
// parameters; they share the rest of it.
func (p *plan) nodesOfURL(c *Config, l *location) error {
	more := l.params["node"]
	delete(l.params, "node")
	if err := l.fillNode(c, "", lockParams+" node"); err != nil {
		return err
	}
	if err := p.add(c, "", "url's address"); err != nil {
		return err
	}
	for _, at := range more {
		one := *c
		switch {
		case c.UnixSocket == "":
			one.Addrs = []string{at}
		case !strings.HasPrefix(at, "/"):
			return refuse("node", at, "the path of a socket from the root")
		default:
			one.UnixSocket = at
		}
		if err := p.add(&one, "", "node"); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) addNode(n Node, at, strategy string) error {
	c := Config{Strategy: strategy, UnixSocket: n.UnixSocket, DB: n.DB, Username: n.Username, Password: n.Password,
		PasswordFile: n.PasswordFile, TLS: n.TLS}
	switch {
	case n.URL != "":
		if err := exclude(n, at+".", "not together with url, which says it", "addr", "unix_socket", "db"); err != nil {
			return err
		}
		l, err := parseURL(at+".url", n.URL)
		if err != nil {
			return err
		}
		if err := l.fillNode(&c, at+".", ""); err != nil {
			return err
		}
		return p.add(&c, at+".", at+".url's address")
	case n.Addr == "" && n.UnixSocket == "":
		return refuse(at, n, "one of url, addr and unix_socket says where it is")
	case n.Addr != "" && n.UnixSocket != "":
		return refuse(at+".addr", n.Addr, "not together with unix_socket")
	case n.Addr != "":
		c.Addrs = []string{n.Addr}
	}
	return p.add(&c, at+".", at+".addr")
}

// fillNode is fill for one of several servers.
func (l *location) fillNode(c *Config, at, more string) error {
	if strings.Contains(l.scheme, "-") && slices.Contains(schemes, l.scheme) {
		return l.refuse("scheme %q; for one of several servers there are redis, rediss, unix", l.scheme)
	}
	return l.fill(c, at, more)
}

// lookupTimeout is short: a program may start before its name server.
const lookupTimeout = time.Second

// checkDistinct refuses two names for one server, whose vote would count twice.
// Servers are not asked here: they may be down. Redlock compares their run ids
// once it is connected.
func checkDistinct(ctx context.Context, servers []server, lookup func(context.Context, string) ([]string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	seen := make(map[string]bool)
	for _, s := range servers {
		names := s.names(ctx, lookup)
		if slices.ContainsFunc(names, func(name string) bool { return seen[name] }) {
			return refuse(s.place, s.single.Addr, "a server of its own for each node; this one is there already, perhaps by another name")
		}
		for _, name := range names {
			seen[name] = true
		}
	}
	return nil
}

// names are the address of s, each in one form only, and those it resolves to.
func (s server) names(ctx context.Context, lookup func(context.Context, string) ([]string, error)) []string {
	host, port, err := net.SplitHostPort(s.single.Addr)
	if err != nil || s.single.Network == "unix" {
		if path, err := filepath.EvalSymlinks(s.single.Addr); err == nil {
			return []string{path}
		}
		return []string{filepath.Clean(s.single.Addr)}
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	names, _ := lookup(ctx, host) // none on failure
	names = append(names, host)
	for i, name := range names {
		ip, err := netip.ParseAddr(name)
		switch ip = ip.Unmap(); {
		case name == "localhost", ip == netip.IPv6Loopback(), err == nil && ip.IsUnspecified():
			name = "127.0.0.1"
		case err == nil:
			name = ip.String()
		}
		names[i] = net.JoinHostPort(name, port)
	}
	return names
}
