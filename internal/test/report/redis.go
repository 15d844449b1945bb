//go:build unix

package report

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/internal/test/redistest"
)

// Servers are independent servers of Redis, each with a proxy for each of two processes.
type Servers struct {
	TB      TB
	Servers []*redistest.Server
	Links   [2][]*faultproxy.Proxy
}

// Plain starts the servers of a subject.
func Plain(s Subject) (Stage, error) { return launch(s) }

// Settable starts servers whose clocks can be set.
func Settable(s Subject) (Stage, error) {
	return launch(s, redistest.WithSettableClock())
}

// Ahead starts servers whose clocks are ahead of the processes'.
func Ahead(by time.Duration) func(Subject) (Stage, error) {
	return func(s Subject) (Stage, error) {
		st, err := launch(s, redistest.WithSettableClock())
		for i := 0; err == nil && i < len(st.Servers); i++ {
			st.Servers[i].SetClock(&st.TB, by)
		}
		return st, err
	}
}

func launch(of Subject, opts ...redistest.Option) (*Servers, error) {
	st := &Servers{}
	if of.Watches {
		opts = append(opts, redistest.WithConfig("--notify-keyspace-events", "Kg$xeh"))
	}
	for range of.Nodes {
		s := redistest.Start(&st.TB, opts...)
		st.Servers = append(st.Servers, s)
		for who := range st.Links {
			p, err := faultproxy.New(s.Addr())
			if err != nil {
				st.Close()
				return nil, err
			}
			p.Record(false)
			st.Links[who] = append(st.Links[who], p)
			st.TB.Cleanup(func() { _ = p.Close() }) // what it did not understand it has not passed on
		}
	}
	return st, nil
}

// Target implements Stage.
func (st *Servers) Target(who int) (t Target) {
	for _, p := range st.Links[who] {
		t.Addrs = append(t.Addrs, p.Addr())
	}
	return t
}

// Silence implements Stage.
func (st *Servers) Silence(who int, on bool) {
	for _, p := range st.Links[who] {
		p.Blackhole(on)
	}
}

// Cut implements Stage.
func (st *Servers) Cut() {
	for _, links := range st.Links {
		for _, p := range links {
			p.Reset()
		}
	}
}

// Forget implements Stage: it empties the first server.
func (st *Servers) Forget(ctx context.Context) error { return st.Empty(ctx, 1) }

// Empty empties the first n servers.
func (st *Servers) Empty(ctx context.Context, n int) error {
	var errs []error
	for _, s := range st.Servers[:n] {
		errs = append(errs, s.Client(&st.TB).FlushAll(ctx).Err())
	}
	return errors.Join(errs...)
}

// Close implements Stage.
func (st *Servers) Close() { st.TB.Close() }

// RedisVersion describes the servers.
func RedisVersion() string {
	s, stop, err := redistest.Launch()
	if err != nil {
		return "Redis"
	}
	defer stop()
	var tb TB
	defer tb.Close()
	return "Redis " + s.Client(&tb).InfoMap(context.Background(), "server").Item("Server", "redis_version")
}
