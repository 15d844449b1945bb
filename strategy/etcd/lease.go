package etcd

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is an etcd lease. It has one member at most.
//
// # A leader that is deposed
//
// A member that leads makes a list of the leases that have ended, looks once whether it leads, and then asks for
// their revocation, 16 at a time, each for up to 7 s. When it is deposed meanwhile, it hands these requests on to the
// next leader, who carries them out, although that leader has let all leases begin anew, and clients have extended
// them there (seen with etcd 3.6.16, without this driver: of 60 leases that were kept alive all the time 44 ended 8 s
// after the leader was cut off, 48 when one that had stood still went on). So a keep-alive by the next leader
// promises nothing, and neither does one by a leader that has been deposed without noticing it.
//
// Every leader keeps this rule: a lease that was granted in a term ends no earlier than its TTL after its grant, or
// after a keep-alive by the leader of that term. For that leader lists it no earlier. Leaders of
// later terms let it begin anew when they are elected. Leaders of earlier terms have never seen
// it while they led. So a lease counts as extended only by the leader of the term that has granted it, before
// a later one was elected, and a claim that lives on in another term moves to a lease that is granted there.
type lease struct {
	id      clientv3.LeaseID
	seconds int64
	// term is one that a leader of had committed something before the lease was asked for. So the lease was granted
	// in this term or a later one; 0: no term was known.
	term uint64

	// leases.mu guards:
	end      time.Time   // no leader lets it end before
	revision int64       // that wrote its member with it, or the least that may have
	unwanted *time.Timer // revokes it when it has been idle for too long
}

// leases holds the leases of this process. A claim has one of its own, and the next claim may have it
// after that. Whoever deletes a member decides what becomes of its lease: a process whose
// member was deleted by another one revokes the lease, as the other one may do.
type leases struct {
	conn    *conn
	streams *streams
	spawn   func(func(ctx context.Context)) bool

	mu       sync.Mutex
	claims   map[string]*lease // of the members that hold, by their ids
	tidyAt   int               // when claims has so many, those that have ended are looked for
	idle     []*lease          // without members
	spent    []*lease          // to be revoked
	revoking bool
	closed   bool
}

// seconds returns the TTL of a lease: the claim's, rounded up, and one more. Within that second a lease
// serves the next claim without a command.
func seconds(ttl time.Duration) int64 { return int64((ttl+time.Second-1)/time.Second) + 1 }

// spare returns how long a lease can still serve the next claim. It needs leases.mu.
func (l *lease) spare() time.Duration {
	return time.Until(l.end) - time.Duration(l.seconds-1)*time.Second
}

// take returns a lease that lasts for ttl from now and has no member.
func (s *leases) take(ctx context.Context, ttl time.Duration) (*lease, error) {
	if l := s.takeIdle(seconds(ttl)); l != nil {
		return l, nil
	}
	return s.make(ctx, ttl)
}

// make is take of a lease that is granted now.
func (s *leases) make(ctx context.Context, ttl time.Duration) (*lease, error) {
	l := s.plan(ttl)
	if err := s.grant(ctx, l); err != nil {
		s.spend(l)
		return nil, err
	}
	return l, nil
}

// plan returns a lease that is to be granted from now on, with an id of our own, by which it can be revoked if there is
// no answer.
func (s *leases) plan(ttl time.Duration) *lease {
	l := &lease{id: clientv3.LeaseID(rand.Int64N(1<<63-1) + 1), seconds: seconds(ttl), term: s.conn.term.Load()}
	l.end = time.Now().Add(time.Duration(l.seconds) * time.Second)
	return l
}

// grant asks for a lease. One that is there was granted by an earlier try: no two have the same one of 2^63 ids.
func (s *leases) grant(ctx context.Context, l *lease) error {
	res, err := send(ctx, s.conn, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
		return s.conn.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.seconds})
	})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
		return nil
	}
	if err == nil {
		s.conn.learn(res.Header)
	}
	return err
}

// keepAlive extends leases by one stream, and returns those that some leader has extended. It does not change end:
// see lease. With again they have been sent before.
func (s *leases) keepAlive(ctx context.Context, again bool, all ...*lease) (map[*lease]bool, error) {
	if len(all) == 0 {
		return nil, nil
	}
	return s.streams.extend(ctx, all, again)
}

// lasts notes that the leader of the lease's term has extended it after the time given.
func (s *leases) lasts(l *lease, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := since.Add(time.Duration(l.seconds) * time.Second); end.After(l.end) {
		l.end = end
	}
}

// of returns the lease that a claim is known to have, or nil.
func (s *leases) of(id string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[id]
}

// keep notes that a revision has written the claim's member with l. The leases that it had before are revoked. When a
// command beside this one has moved the member on since, l is its lease no longer: that command saw l there, and
// revokes it.
func (s *leases) keep(id string, l *lease, revision int64, had clientv3.LeaseID) {
	s.mu.Lock()
	old := s.claims[id]
	if old != nil && old.revision > revision {
		s.mu.Unlock()
		s.spendOthers(old.id, nil, had)
		return
	}
	l.revision = revision
	if len(s.claims) >= s.tidyAt { // a claim that was lost may never be released
		now := time.Now()
		maps.DeleteFunc(s.claims, func(_ string, l *lease) bool { return l.end.Before(now) })
		s.tidyAt = max(64, 2*len(s.claims))
	}
	s.claims[id] = l
	s.mu.Unlock()
	s.spendOthers(l.id, old, had)
}

// expect notes that the claim's member, which a revision had written, may have got l since. It has not if the member is
// known to have moved on: another command was first.
func (s *leases) expect(id string, l *lease, written int64) {
	s.mu.Lock()
	old := s.claims[id]
	overtaken := old != nil && old.revision > written
	if !overtaken {
		l.revision = written + 1
		s.claims[id] = l
	}
	s.mu.Unlock()
	if overtaken {
		s.spend(l)
	}
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
	s.spendOthers(0, l, had)
}

// spendOthers revokes a lease and one of which only the id is known, unless they are the one kept.
func (s *leases) spendOthers(kept clientv3.LeaseID, l *lease, id clientv3.LeaseID) {
	if l != nil && l.id != kept {
		s.spend(l)
	}
	if id != 0 && id != kept && (l == nil || l.id != id) {
		s.spend(&lease{id: id, end: time.Now().Add(time.Hour)})
	}
}
