//go:build unix

package main

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
	"github.com/distlock/locker/internal/test/report"
)

// servers are independent servers, each with a proxy for each of two processes.
type servers struct {
	tb      report.TB
	servers []*redistest.Server
	links   [2][]*faultproxy.Proxy
}

func plain(s report.Subject) (report.Stage, error) { return start(s.Nodes) }

// settable starts servers whose clocks can be set.
func settable(s report.Subject) (report.Stage, error) {
	return start(s.Nodes, redistest.WithSettableClock())
}

// ahead starts servers whose clocks are ahead of the processes'.
func ahead(by time.Duration) func(report.Subject) (report.Stage, error) {
	return func(s report.Subject) (report.Stage, error) {
		st, err := start(s.Nodes, redistest.WithSettableClock())
		for i := 0; err == nil && i < len(st.servers); i++ {
			st.servers[i].SetClock(&st.tb, by)
		}
		return st, err
	}
}

func start(n int, opts ...redistest.Option) (*servers, error) {
	st := &servers{}
	for range n {
		s := redistest.Start(&st.tb, opts...)
		st.servers = append(st.servers, s)
		for who := range st.links {
			p, err := faultproxy.New(s.Addr())
			if err != nil {
				st.Close()
				return nil, err
			}
			p.Record(false)
			st.links[who] = append(st.links[who], p)
			st.tb.Cleanup(func() { _ = p.Close() }) // what it did not understand it has not passed on
		}
	}
	return st, nil
}

func (st *servers) Target(who int) (t report.Target) {
	for _, p := range st.links[who] {
		t.Addrs = append(t.Addrs, p.Addr())
	}
	return t
}

func (st *servers) Silence(who int, on bool) {
	for _, p := range st.links[who] {
		p.Blackhole(on)
	}
}

func (st *servers) Cut() {
	for _, links := range st.links {
		for _, p := range links {
			p.Reset()
		}
	}
}

// Forget empties the first server.
func (st *servers) Forget(ctx context.Context) error { return st.empty(ctx, 1) }

func (st *servers) empty(ctx context.Context, n int) error {
	var errs []error
	for _, s := range st.servers[:n] {
		errs = append(errs, s.Client(&st.tb).FlushAll(ctx).Err())
	}
	return errors.Join(errs...)
}

func (st *servers) Close() { st.tb.Close() }

// group is a master with a replica and Sentinels, or a cluster. Its processes have no proxies: they are sent from
// server to server.
type group struct {
	tb       report.TB
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
}

func sentinels(report.Subject) (report.Stage, error) {
	g := &group{}
	g.sentinel = redistest.StartSentinel(&g.tb, 1, 1)
	return g, nil
}

func cluster(report.Subject) (report.Stage, error) {
	g := &group{}
	g.cluster = redistest.StartCluster(&g.tb, 3, 0)
	return g, nil
}

func (g *group) Target(int) report.Target {
	if g.cluster != nil {
		return report.Target{Addrs: g.cluster.Addrs(), Kind: "cluster"}
	}
	return report.Target{Addrs: g.sentinel.Addrs(), Kind: "sentinel"}
}

func (g *group) Silence(int, bool)            {}
func (g *group) Cut()                         {}
func (g *group) Forget(context.Context) error { return errors.ErrUnsupported }
func (g *group) Close()                       { g.tb.Close() }

// server describes the servers.
func server() string {
	s, stop, err := redistest.Launch()
	if err != nil {
		return "Redis"
	}
	defer stop()
	var tb report.TB
	defer tb.Close()
	return "Redis " + s.Client(&tb).InfoMap(context.Background(), "server").Item("Server", "redis_version")
}
