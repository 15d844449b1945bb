package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	// streamsKept is how many streams wait for the next keep-alives: about as many as renewals use at a time.
	streamsKept = 64
	// streamsAtOnce is how many streams are opened beside one another.
	streamsAtOnce = 16
)

// streams are those that extend leases. A stream is kept for the next keep-alives: for each stream that it opens, a
// client with a password asks etcd for a token, and to make one costs etcd tens of milliseconds of a core.
//
// A stream ends when its keep-alives fail or are given up: an answer that comes late must not count for a later
// keep-alive of the same lease. A kept stream may have failed since it was used: its server has ended or has no leader,
// or its token is not valid any more. So the keep-alives, which change nothing when they arrive once more, get another
// stream then.
//
// A stream leads to one server, and so may all that are kept. When that server is frozen, the next try (see hedged) takes
// none of them: it takes one that has just been used, or a new one, which leads to the next server in turn.
type streams struct {
	conn    *conn
	base    context.Context // ends all streams
	opening chan struct{}
	passed  chan *stream // to one who waits for a stream

	mu   sync.Mutex
	kept []*stream
}

type stream struct {
	pb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

func newStreams(base context.Context, c *conn) *streams {
	return &streams{conn: c, base: base, opening: make(chan struct{}, streamsAtOnce), passed: make(chan *stream)}
}

// extend extends leases by one stream: one that was kept, unless the keep-alives are sent again. A server without a leader
// refuses them, and has done nothing.
func (s *streams) extend(ctx context.Context, all []*lease, again bool) (extended map[*lease]bool, err error) {
	if !again {
		if st := s.unkeep(); st != nil {
			if extended, err = s.use(ctx, st, all); err == nil || ctx.Err() != nil {
				return extended, err
			}
		}
	}
	for range 3 {
		var st *stream
		if st, err = s.next(ctx); err == nil {
			extended, err = s.use(ctx, st, all)
		}
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
			break
		}
	}
	return extended, err
}

// unkeep returns the stream that was kept last, or nil. Its token is the one most likely to be valid.
func (s *streams) unkeep() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.kept)
	if n == 0 {
		return nil
	}
	st := s.kept[n-1]
	s.kept = slices.Delete(s.kept, n-1, n)
	return st
}

// keep passes a stream on to one who waits, or keeps it. All its answers have come.
func (s *streams) keep(st *stream) {
	select {
	case s.passed <- st:
		return
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < streamsKept {
		s.kept = append(s.kept, st)
	} else {
		st.end()
	}
}

// next returns a stream that has just been used, or a new one, which outlives ctx.
func (s *streams) next(ctx context.Context) (*stream, error) {
	select {
	case st := <-s.passed:
		return st, nil
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	life, end := context.WithCancel(s.base)
	defer context.AfterFunc(ctx, end)()
	st, err := send(life, s.conn, func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
		return s.conn.leases.LeaseKeepAlive(ctx)
	})
	if err != nil {
		end()
		return nil, cmp.Or(ctx.Err(), err)
	}
	return &stream{st, end}, nil
}

// use extends leases by a stream, and then keeps or ends it.
func (s *streams) use(ctx context.Context, st *stream, all []*lease) (map[*lease]bool, error) {
	inTime := context.AfterFunc(ctx, st.end)
	extended, err := st.extend(all)
	if !inTime() {
		err = ctx.Err()
	}
	if err != nil {
		st.end()
		return nil, err
	}
	s.keep(st)
	return extended, nil
}

var errOtherLease = errors.New("etcd has answered about another lease")

func (st *stream) extend(all []*lease) (map[*lease]bool, error) {
	for _, l := range all {
		if st.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}) != nil {
			break // Recv returns the reason
		}
	}
	extended := make(map[*lease]bool, len(all))
	for _, l := range all {
		res, err := st.Recv()
		if err != nil {
			return nil, err
		}
		if res.ID != int64(l.id) {
			return nil, errOtherLease
		}
		extended[l] = res.TTL >= l.seconds
	}
	return extended, nil
}
