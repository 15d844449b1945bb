package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// revokesAtOnce is how many leases are revoked beside one another.
	revokesAtOnce = 8
	// revokeTimeout is for a batch of these.
	revokeTimeout = 2 * time.Second
)

// rest keeps a lease for the next claim, while it can serve one.
func (s *leases) rest(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := l.spare()
	if s.closed || spare <= 0 {
		s.revoke(l)
		return
	}
	s.idle = append(s.idle, l)
	l.unwanted = time.AfterFunc(spare, func() {
		if s.unrest(func(idle *lease) bool { return idle == l }) != nil {
			s.spend(l)
		}
	})
}

// takeIdle returns a lease that the next claim can have, or nil.
func (s *leases) takeIdle(seconds int64) *lease {
	return s.unrest(func(l *lease) bool { return l.seconds == seconds && l.spare() >= 0 })
}

// unrest ends the rest of one lease that fits, and returns it, or nil. The one that has become idle last is likely to last
// longest.
func (s *leases) unrest(fits func(*lease) bool) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range slices.Backward(s.idle) {
		if fits(l) {
			l.unwanted.Stop()
			s.idle = slices.Delete(s.idle, i, i+1)
			return l
		}
	}
	return nil
}

// spend revokes a lease, in the background.
func (s *leases) spend(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoke(l)
}

// revoke needs mu. Leases that cannot be revoked end by themselves.
func (s *leases) revoke(more ...*lease) {
	s.spent = append(s.spent, more...)
	if s.revoking || len(s.spent) == 0 {
		return
	}
	s.revoking = s.spawn(func(ctx context.Context) {
		for {
			s.mu.Lock()
			n := min(len(s.spent), revokesAtOnce)
			now := time.Now()
			batch := slices.DeleteFunc(slices.Clone(s.spent[:n]), func(l *lease) bool { return now.After(l.end) })
			s.spent = slices.Delete(s.spent, 0, n)
			s.revoking = n > 0
			s.mu.Unlock()
			if n == 0 {
				return
			}
			s.revokeAll(ctx, batch)
		}
	})
}

func (s *leases) revokeAll(ctx context.Context, batch []*lease) {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range batch {
		wg.Go(func() {
			_, _ = send(ctx, s.conn, func(ctx context.Context) (*pb.LeaseRevokeResponse, error) {
				return s.conn.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(l.id)})
			})
		})
	}
	wg.Wait()
}

// afterClose revokes what a release has left over when nothing runs in the background any more.
func (s *leases) afterClose(ctx context.Context) {
	s.mu.Lock()
	var rest []*lease
	if s.closed && !s.revoking {
		rest, s.spent = s.spent, nil
	}
	s.mu.Unlock()
	if len(rest) > 0 {
		s.revokeAll(ctx, rest)
	}
}

// close revokes what is idle.
func (s *leases) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.idle {
		l.unwanted.Stop()
	}
	s.revoke(s.idle...)
	s.idle = nil
}
