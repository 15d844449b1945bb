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

// takeNodes plans for independent servers. How many there must be is for the
// strategy to say.
func (p *plan) takeNodes(nodes []Node) error {
	for i, n := range nodes {
		at := fmt.Sprintf("nodes[%d].", i)
		c := Config{UnixSocket: n.UnixSocket, DB: n.DB, Username: n.Username, Password: n.Password, PasswordFile: n.PasswordFile, TLS: n.TLS}
		if n.Addr != "" {
			c.Addrs = []string{n.Addr}
		}
		place := at + "addr"
		if n.URL != "" {
			if err := exclude(n, at, "not together with url, which says it", "addr", "unix_socket", "db"); err != nil {
				return err
			}
			l, err := parseURL(at+"url", n.URL)
			if err == nil {
				err = l.fill(&c, at, "")
			}
			if err != nil {
				return err
			}
			place = at + "url's address"
		}
		if err := p.add(&c, at, place); err != nil {
			return err
		}
	}
	return nil
}

// takeMore plans for the servers that a URL names in parameters. They share all
// of c but the address.
func (p *plan) takeMore(c *Config, addrs []string) error {
	for _, addr := range addrs {
		one := *c
		switch {
		case c.UnixSocket == "":
			one.Addrs = []string{addr}
		case !strings.HasPrefix(addr, "/"):
			return refuse("node", addr, "the path of a socket from the root")
		default:
			one.UnixSocket = addr
		}
		if err := p.add(&one, "", "node"); err != nil {
			return err
		}
	}
	return nil
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

// names returns the address of s and those it resolves to, each in one form only.
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
