package leader

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
)

// Healthy is for a health check of the process: it returns an error, with the loss, if the candidate lost its
// leadership more than the given time ago and its function has not returned. Such a function may go on writing beside
// the next leader; whoever checks ends the process. A candidate that waits, or cannot reach the store, is healthy. It
// looks at the clock and does not ask the store.
//
//	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
//		if err := e.Healthy(10 * time.Second); err != nil {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	})
func (e *Elector) Healthy(within time.Duration) error {
	t := e.term.Load()
	if t == nil || !errors.Is(t.lease.Err(), locker.ErrLost) {
		return nil
	}
	// A process that was stopped past the deadline has not noticed the loss when it happened.
	since := t.lease.Deadline()
	if at := t.lostAt.Load(); at != nil && at.Before(since) {
		since = *at
	}
	if ago := time.Since(since); ago > within {
		return fmt.Errorf("leader: the function still runs %v after %q was lost: %w", ago.Round(time.Millisecond), e.key, t.lease.Err())
	}
	return nil
}

// Stats counts what happened to a candidate since it was made, for metrics:
//
//	expvar.Publish("leader", expvar.Func(func() any { return e.Stats() }))
type Stats struct {
	Leads  bool          // as IsLeader
	Terms  uint64        // that have begun
	Lost   uint64        // those of them that ended by a loss
	Failed uint64        // how often it could not stand
	Led    time.Duration // of all terms, the present one included
}

// Stats returns the present counts.
func (e *Elector) Stats() Stats {
	e.past.mu.Lock()
	defer e.past.mu.Unlock()
	st, t := e.past.Stats, e.term.Load()
	if st.Leads = t.leads(); t != nil {
		st.Terms++
		st.Led += time.Since(t.Since)
	}
	return st
}

// past has the counts of what is over.
type past struct {
	mu sync.Mutex
	Stats
}

func (p *past) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.Stats)
}

// over notes that the function of t has returned.
func (e *Elector) over(t *term) {
	e.past.count(func(s *Stats) {
		e.term.Store(nil)
		s.Terms++
		s.Led += time.Since(t.Since)
	})
}
