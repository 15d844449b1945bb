package compare

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/distlock/locker/cmd/locker/internal/servers"
	"github.com/redis/go-redis/v9"
)

// contestant is a strategy on a store.
type contestant struct {
	name  string   // of the strategy, numbered where it is there twice
	kind  string   // the strategy
	url   string   // as package strategy takes it, with passwords
	nodes []string // instead of url: those of redlock
	about string   // the store, for people
	meter *meter

	faulty []*faulty // its servers, if they can be broken
	suite  bool      // the conformance suite for it is within this program
}

// kinds are all strategies, by the names that URLs have.
var kinds = map[string]string{"postgresql": "postgres", "mariadb": "mysql", "etcds": "etcd"}

// Names returns the names of the strategies that can be compared.
func Names() (names []string) {
	for _, c := range candidates {
		names = append(names, c.name)
	}
	return append(names, "memory", "postgres", "mysql", "etcd")
}

// contestants finds what is compared. What of it has been started is ended by s.stop.
func (s *stores) contestants(ctx context.Context, o Options) (all []*contestant, err error) {
	for _, name := range o.Strategies {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("%w: there is no strategy %q to compare: %s", ErrUsage, name, strings.Join(Names(), ", "))
		}
	}
	wanted := func(name string) bool { return len(o.Strategies) == 0 || slices.Contains(o.Strategies, name) }
	if len(s.urls) > 0 {
		m := &meter{own: s.own}
		for i, c := range candidates {
			switch {
			case c.single.New == nil && wanted(c.name):
				nodes, err := s.nodes()
				if err != nil && len(o.Strategies) == 0 {
					continue
				} else if err != nil {
					return nil, err
				}
				all = append(all, &contestant{name: c.name, kind: c.name, nodes: s.urls[1:], about: s.about, meter: s.meterOf(nodes), faulty: s.breakable(1), suite: true})
			case c.single.New != nil && wanted(c.name) && s.bare:
				if len(m.redis) == 0 {
					single, err := options(s.urls[0])
					if err != nil {
						return nil, err
					}
					m = s.meterOf([]*redis.Options{single})
				}
				all = append(all, &contestant{name: c.name, kind: candidates[i].name, url: c.name + "+" + bareURL(s.urls[0]), about: s.about, meter: m, faulty: s.breakable(0), suite: true})
			}
		}
	}
	if s.started {
		more, err := s.startOthers(ctx, o, wanted)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	for _, u := range s.more {
		scheme, _, _ := strings.Cut(u, "://")
		kind, _, _ := strings.Cut(scheme, "+")
		if known, ok := kinds[kind]; ok {
			kind = known
		}
		if wanted(kind) {
			all = append(all, &contestant{name: kind, kind: kind, url: u, about: "a store of yours, " + hostOf(u), meter: s.meterOfURL(kind, u), suite: false})
		}
	}
	for _, name := range o.Strategies {
		if !slices.ContainsFunc(all, func(c *contestant) bool { return c.kind == name }) {
			return nil, fmt.Errorf("%w: --strategies names %s, and no server for it is given", ErrUsage, name)
		}
	}
	number(all)
	return all, nil
}

// startOthers starts the stores that are installed. One that is asked for and cannot be started
// is an error.
func (s *stores) startOthers(ctx context.Context, o Options, wanted func(string) bool) (all []*contestant, err error) {
	if wanted("memory") {
		all = append(all, &contestant{name: "memory", kind: "memory", url: "memory://compare", about: "the memory of one process", meter: &meter{}})
	}
	for _, name := range []string{"postgres", "mysql", "etcd"} {
		if !wanted(name) {
			continue
		}
		o.Begin("starting a server for " + name)
		server, err := servers.ByStrategy[name](ctx)
		switch {
		case errors.Is(err, servers.ErrNotInstalled) && len(o.Strategies) == 0:
			s.missing = append(s.missing, err.Error())
			continue
		case err != nil:
			return nil, err
		}
		s.ends = append(s.ends, server.Stop)
		all = append(all, &contestant{name: name, kind: name, url: server.URL, about: server.About + ", started for this on this machine", meter: &meter{pid: server.PID, own: true}, faulty: []*faulty{{freeze: server.Freeze, thaw: server.Thaw, kill: server.Crash, revive: server.Revive}}})
	}
	return all, nil
}

// number makes names of strategies that are there twice differ.
func number(all []*contestant) {
	seen := make(map[string]int)
	for _, c := range all {
		if seen[c.kind]++; seen[c.kind] > 1 {
			c.name = fmt.Sprintf("%s#%d", c.kind, seen[c.kind])
		}
	}
}

// meterOf returns a meter of Redis servers; its clients end with s.
func (s *stores) meterOf(servers []*redis.Options) *meter {
	m := &meter{own: s.own}
	for _, o := range servers {
		rdb := redis.NewClient(o)
		s.ends = append(s.ends, func() { _ = rdb.Close() })
		m.redis = append(m.redis, rdb)
	}
	return m
}

// meterOfURL returns the meter of a store of others.
func (s *stores) meterOfURL(kind, u string) *meter {
	if _, err := find(kind); err != nil || kind == "redlock" {
		return &meter{}
	}
	o, err := options(u)
	if err != nil {
		return &meter{}
	}
	return s.meterOf([]*redis.Options{o})
}

// bareURL returns a URL of Redis without its strategy.
func bareURL(u string) string {
	if scheme, _, _ := strings.Cut(u, "://"); strings.Contains(scheme, "+") {
		_, u, _ = strings.Cut(u, "+")
	}
	return u
}

// hostOf returns the part of a URL that may be shown.
func hostOf(u string) string {
	parsed, err := url.Parse(u)
	if err != nil {
		return "whose URL is not shown"
	}
	if parsed.Host == "" {
		return parsed.Scheme + " by a socket"
	}
	return parsed.Scheme + " at " + parsed.Host
}
