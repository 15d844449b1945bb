package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// Store is where locks are kept: what the Redis server is to other strategies.
// It is safe for use by many goroutines.
//
// Its methods other than New and Driver are for tests that look at locks from
// outside or take them away. Keys are named as they are in the store, with the
// Locker's prefix.
type Store struct {
	mu        sync.Mutex
	held      map[string]*grant
	watches   map[string]map[*watch]struct{}
	lastToken int64
	ops       int // grants and releases since the last sweep
}

// grant is one claim's hold of a key. It is worth nothing from until on, but
// may stay in the map for a while.
type grant struct {
	id, owner string
	token     int64
	since     time.Time
	until     time.Time
}

// New returns a Locker with a Store of its own.
func New(opts ...locker.Option) (locker.Locker, error) {
	return NewStore().New(opts...)
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{
		held:    make(map[string]*grant),
		watches: make(map[string]map[*watch]struct{}),
	}
}

// New returns a Locker on s. Each stands for one process.
func (s *Store) New(opts ...locker.Option) (locker.Locker, error) {
	return locker.New(s.Driver(), opts...)
}

// Driver returns a driver on s, for tests that wrap it to make it fail. Give it
// to one [locker.New].
func (s *Store) Driver() driver.Driver { return storeDriver{s} }

// Keys returns the held keys in ascending order.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(time.Now())
	keys := make([]string, 0, len(s.held))
	for key := range s.held {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Holder says who holds key and what is left of the lease.
func (s *Store) Holder(key string) (owner string, left time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	g := s.holder(key, now)
	if g == nil {
		return "", 0, false
	}
	return g.owner, g.until.Sub(now), true
}

// Break takes key from its holder, as an operator does who deletes it, and reports
// whether it was held. No waiter is notified, as in Redis: a waiter looks about once a
// second. The holder learns of it at its next renewal or Unlock; until then two may be
// inside.
func (s *Store) Break(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holder(key, time.Now()) != nil
	delete(s.held, key)
	return held
}

// Flush breaks every lock, as a store does that loses its data. Tokens go on
// growing.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.held)
}

// holder returns the live grant of key, or nil. s.mu is held.
func (s *Store) holder(key string, now time.Time) *grant {
	if g := s.held[key]; g != nil && now.Before(g.until) {
		return g
	}
	return nil
}

// drop frees key and wakes those who watch it. s.mu is held.
func (s *Store) drop(key string) {
	delete(s.held, key)
	for w := range s.watches[key] {
		select {
		case w.c <- struct{}{}:
		default: // one is waiting there already
		}
	}
}

// token returns the next fencing token, the first of n that nothing else gets. s.mu is
// held.
func (s *Store) token(now time.Time, n int) int64 {
	first := max(s.lastToken+1, now.UnixMicro())
	s.lastToken = first + int64(max(n, 1)) - 1
	return first
}

// tidy sweeps once in half as many calls as there are grants: expired ones that
// no caller asks for do not pile up, at a constant cost per call. s.mu is held.
func (s *Store) tidy(now time.Time) {
	if s.ops++; 2*s.ops >= len(s.held) {
		s.sweep(now)
	}
}

func (s *Store) sweep(now time.Time) {
	s.ops = 0
	for key, g := range s.held {
		if !now.Before(g.until) {
			s.drop(key)
		}
	}
}
