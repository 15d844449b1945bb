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
	Links
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
		err := st.Link(func() (*faultproxy.Proxy, error) {
			p, err := faultproxy.New(s.Addr())
			if err == nil {
				p.Record(false)
			}
			return p, err
		})
		if err != nil {
			st.Close()
			return nil, err
		}
	}
	return st, nil
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

// Crash kills the first server, which has its data on disk, and starts it again after a time.
func (st *Servers) Crash(down time.Duration) error {
	s := st.Servers[0]
	if err := s.Persist(); err != nil {
		return err
	}
	s.Kill()
	time.AfterFunc(down, func() { _ = s.Revive() }) // if it fails, no one gets the lock
	return nil
}

// Freeze stops the process of the first server for a time.
func (st *Servers) Freeze(d time.Duration) {
	st.Servers[0].Pause()
	time.AfterFunc(d, st.Servers[0].Resume)
}

// Close implements Stage.
func (st *Servers) Close() {
	st.Unlink() // what a proxy did not understand it has not passed on
	st.TB.Close()
}

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
