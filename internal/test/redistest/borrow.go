package redistest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// idle are clusters and Sentinel set-ups of this binary that are not in use, by
// their shape.
var idle struct {
	sync.Mutex
	clusters  map[[2]int][]*Cluster
	sentinels map[[2]int][]*Sentinel
}

// BorrowCluster is StartCluster for a test that can do with a cluster an earlier
// test of this binary has used. It starts out empty. It is the borrower's alone,
// to do with as it likes: what is not given back as it was is not used again.
func BorrowCluster(tb testing.TB, masters, replicasPer int) *Cluster {
	tb.Helper()
	shape := [2]int{masters, replicasPer}
	c := take(&idle.clusters, shape)
	if c == nil {
		var err error
		if c, err = launchCluster(masters, replicasPer); err != nil {
			tb.Fatalf("redistest: cluster: %v", err)
		}
	}
	tb.Cleanup(func() {
		if !untouched(&c.changed, c.nodes) || c.empty() != nil {
			c.discard()
			return
		}
		give(&idle.clusters, shape, c)
	})
	return c
}

// BorrowSentinel is to StartSentinel as BorrowCluster is to StartCluster.
func BorrowSentinel(tb testing.TB, replicas, sentinels int) *Sentinel {
	tb.Helper()
	shape := [2]int{replicas, sentinels}
	s := take(&idle.sentinels, shape)
	if s == nil {
		var err error
		if s, err = launchSentinel(replicas, sentinels); err != nil {
			tb.Fatalf("redistest: sentinel: %v", err)
		}
	}
	tb.Cleanup(func() {
		if !untouched(&s.changed, slices.Concat(s.data, s.watch)) || s.empty() != nil {
			s.discard()
			return
		}
		give(&idle.sentinels, shape, s)
	})
	return s
}

func untouched(changed *atomic.Bool, servers []*Server) bool {
	return !changed.Load() && !slices.ContainsFunc(servers, func(s *Server) bool { return !s.answers() || s.PID() != s.started })
}

func take[T any](from *map[[2]int][]*T, shape [2]int) *T {
	idle.Lock()
	defer idle.Unlock()
	all := (*from)[shape]
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1]
	(*from)[shape] = all[:len(all)-1]
	return last
}

func give[T any](to *map[[2]int][]*T, shape [2]int, x *T) {
	idle.Lock()
	defer idle.Unlock()
	if *to == nil {
		*to = make(map[[2]int][]*T)
	}
	(*to)[shape] = append((*to)[shape], x)
}
