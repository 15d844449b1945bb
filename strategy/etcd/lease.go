package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is an etcd lease. It has one member at most.
type lease struct {
	id      clientv3.LeaseID
	seconds int64

	// Of leases.mu:
	end  time.Time // it lasts at least until then,
	term uint64    // if the leader of this raft term led; 0: the majority has granted it
	idle time.Time // since when it has no member
	// doubtful: a command that puts a member with it may arrive yet. No other claim can use it.
	doubtful bool
}

// leases are those of this process. A claim has one of its own, and the next claim may have it
// after that. Whoever deletes a member decides what becomes of its lease: a process whose
// member was deleted by another one revokes the lease, as the other one may do.
type leases struct {
	conn  *conn
	spawn func(func(ctx context.Context)) bool

	mu       sync.Mutex
	claims   map[string]*lease // by the id of the member
	tidyAt   int               // when claims has so many, those that have ended are looked for
	idle     []*lease          // in the order of their time
	spent    []*lease          // to be revoked
	revoking bool
	closed   bool
}

// seconds is the TTL of a lease: the claim's, rounded up, and one more. Within that second a lease
// serves the next claim without a command. It also covers a keep-alive that a leader has
// answered while the others elected the next one, by whose clock the lease lasts.
func seconds(ttl time.Duration) int64 { return int64((ttl+time.Second-1)/time.Second) + 1 }

// take returns a lease that lasts for ttl from now and has no member.
func (s *leases) take(ctx context.Context, ttl time.Duration) (*lease, error) {
	s.mu.Lock()
	l := s.takeIdle(seconds(ttl))
	s.mu.Unlock()
	if l != nil {
		err := s.last(ctx, l, ttl)
		if err == nil {
			return l, nil
		}
		s.spend(l)
		if !errors.Is(err, errLost) {
			return nil, err
		}
	}
	return s.grant(ctx, ttl)
}

// takeIdle needs mu. The one that has become idle last is likely to last.
func (s *leases) takeIdle(seconds int64) *lease {
	for i, l := range slices.Backward(s.idle) {
		if l.seconds == seconds {
			s.idle = slices.Delete(s.idle, i, i+1)
			return l
		}
	}
	return nil
}

// of returns the claim's lease, which lasts for ttl from now; nil if it has none.
func (s *leases) of(ctx context.Context, id string, ttl time.Duration) (*lease, error) {
	s.mu.Lock()
	l := s.claims[id]
	s.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	err := s.last(ctx, l, ttl)
	if errors.Is(err, errLost) {
		s.left(id, 0)
		return nil, nil
	}
	return l, err
}

// last makes a lease last for ttl from now; errLost: it has ended.
func (s *leases) last(ctx context.Context, l *lease, ttl time.Duration) error {
	s.mu.Lock()
	lasts := time.Until(l.end) >= ttl
	s.mu.Unlock()
	if lasts {
		return nil
	}
	return s.keepOne(ctx, l, 0)
}

func (s *leases) keepOne(ctx context.Context, l *lease, term uint64) error {
	return s.keepAlive(ctx, []*lease{l}, term, func(_ int, err error) error { return err })
}

// confirm extends a lease again if it was extended before the term in which its member was found: perhaps by a
// leader that was none any more.
func (s *leases) confirm(ctx context.Context, l *lease, term uint64) error {
	s.mu.Lock()
	sure := l.term == 0 || l.term >= term
	s.mu.Unlock()
	if sure {
		return nil
	}
	return s.keepOne(ctx, l, term)
}

// grant makes a lease with an id of our own, by which it can be revoked if there is no answer.
func (s *leases) grant(ctx context.Context, ttl time.Duration) (*lease, error) {
	now := time.Now()
	l := &lease{id: clientv3.LeaseID(rand.Int64N(1<<63-1) + 1), seconds: seconds(ttl)}
	l.end = now.Add(time.Duration(l.seconds) * time.Second)
	_, err := send(ctx, s.conn, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
		return s.conn.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.seconds})
	})
	if err != nil {
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) { // it would be another claim's
			s.spend(l)
		}
		return nil, err
	}
	return l, nil
}

var errEarlierTerm = errors.New("a lease was extended by a leader of an earlier term")

// keepAlive extends leases by one stream. It calls answer for each, in their order, with nil or
// errLost until that returns an error, and returns what the stream has ended by. A keep-alive is not decided by the
// majority: an answer counts if the member that gave it was in term, or a later one, before.
func (s *leases) keepAlive(ctx context.Context, all []*lease, term uint64, answer func(i int, err error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := time.Now()
	stream, err := s.conn.leases.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	for _, l := range all {
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)})
		}
	}
	for i, l := range all {
		var res *pb.LeaseKeepAliveResponse
		if err == nil {
			res, err = stream.Recv()
		}
		if err == nil && res.GetHeader().GetRaftTerm() < term {
			err = errEarlierTerm
		}
		if err != nil {
			return err
		}
		var gone error
		if res.TTL < l.seconds || res.ID != int64(l.id) {
			gone = errLost
		} else {
			s.mu.Lock()
			l.end, l.term = sent.Add(time.Duration(l.seconds)*time.Second), res.GetHeader().GetRaftTerm()
			s.mu.Unlock()
		}
		if err = answer(i, gone); err != nil {
			return err
		}
	}
	return nil
}

// keep notes that the claim has a member with l. The lease that it had before is for the next claim.
func (s *leases) keep(id string, l *lease) {
	s.mu.Lock()
	old := s.claims[id]
	defer func() {
		s.mu.Unlock()
		if old != nil && old != l {
			s.rest(old)
		}
	}()
	if len(s.claims) >= s.tidyAt { // a claim that was lost may never be released
		now := time.Now()
		for id, l := range s.claims {
			if l.end.Before(now) {
				delete(s.claims, id)
			}
		}
		s.tidyAt = max(64, 2*len(s.claims))
	}
	s.claims[id] = l
}

// renewed returns the lease by which a member is found to live; one that this process
// does not know lasts for ttl, too.
func (s *leases) renewed(id string, found clientv3.LeaseID, ttl time.Duration) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.claims[id]; l != nil && l.id == found {
		return l
	}
	return &lease{id: found, seconds: seconds(ttl)}
}

// unused takes back the lease of an attempt that was refused.
func (s *leases) unused(id string, l *lease) {
	s.mu.Lock()
	known := s.claims[id] == l
	s.mu.Unlock()
	if known {
		s.left(id, 0)
	} else {
		s.rest(l)
	}
}

// doubt is for a lease by which a member may be put yet, since an attempt got no answer. It is revoked.
func (s *leases) doubt(id string, l *lease) {
	s.mu.Lock()
	l.doubtful = true
	if s.claims[id] == l {
		delete(s.claims, id)
	}
	s.mu.Unlock()
	s.spend(l)
}

// left notes that this process has deleted a claim's member, which had the lease; 0: it was not there.
func (s *leases) left(id string, had clientv3.LeaseID) {
	s.mu.Lock()
	l := s.claims[id]
	delete(s.claims, id)
	s.mu.Unlock()
	if l != nil && l.id == had {
		s.rest(l)
		return
	}
	if l != nil {
		s.spend(l)
	}
	if had != 0 {
		s.spend(&lease{id: had, end: time.Now().Add(time.Hour)})
	}
}
