// Package sqlsoak is the soak's topology for a lock strategy on a SQL database: one server, and its faults.
package sqlsoak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/servers"
	"github.com/distlock/locker/internal/test/soak"
)

// Server is a server that was made and not started. A kill -9 must not undo its commits.
type Server struct {
	*servers.Server
	Socket string                      // the path of its socket
	Ready  func(context.Context) error // returns nil when the server works
}

// Some leases outlive the restart of a server: they show whether the server has kept the locks.
var leases = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}

// Own returns a topology of one server that launch makes for each round.
func Own(name soak.Topology, launch func() (*Server, error)) *soak.Own {
	return &soak.Own{
		Name: name, TTLs: leases,
		Faults: []soak.Fault{
			{Name: "kill-server", Doc: "the server is killed (kill -9), and started at once with its data"},
			{Name: "freeze-short", Doc: "the server stands still (SIGSTOP) for less than the shortest TTL"},
			{Name: "freeze-long", Doc: "the server stands still for more than the longest TTL, unless the storm ends before"},
		},
		Start: func(ctx context.Context) (soak.Servers, error) {
			s, err := launch()
			if err != nil {
				return nil, err
			}
			if err := s.Start(ctx, s.Ready); err != nil {
				s.Stop()
				return nil, err
			}
			return s, nil
		},
	}
}

// Addrs implements soak.Servers.
func (s *Server) Addrs() []string { return []string{s.Socket} }

// Close implements soak.Servers.
func (s *Server) Close() { s.Stop() }

// Strike implements soak.Servers.
func (s *Server) Strike(ctx context.Context, r *rand.Rand, fault string) error {
	shortest, longest := leases[0], leases[len(leases)-1]
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	switch fault {
	case "kill-server":
		s.Crash()
		return s.Start(context.Background(), s.Ready)
	case "freeze-short":
		s.freeze(ctx, upTo(shortest))
	case "freeze-long":
		s.freeze(ctx, longest+upTo(shortest))
	default:
		return fmt.Errorf("no fault %q", fault)
	}
	return s.settle()
}

func (s *Server) freeze(ctx context.Context, d time.Duration) {
	s.Freeze()
	bound.Sleep(ctx, nil, d)
	s.Thaw()
}

// patience is for what takes no time on a machine that is not busy.
const patience = 30 * time.Second

// settle returns when the server works again.
func (s *Server) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := s.Ready(ctx)
		if err == nil {
			return nil
		}
		// After a freeze the queue of connections may be full: there is no event to wait for.
		if !bound.Sleep(ctx, nil, 50*time.Millisecond) {
			return fmt.Errorf("%s does not work %v after a fault: %w", s.About, patience, err)
		}
	}
}
