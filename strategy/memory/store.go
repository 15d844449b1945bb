package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
)

// Store is where locks are kept: what the Redis server is to other strategies.
// It is safe for use by many goroutines.
//
// Its methods other than New and Driver are for tests that look at locks from
// outside or take them away. Keys are named as they are in the store, with the
// Locker's prefix.
type Store struct {
	t         *locktable.Table
	lastToken int64
	ops       int // grants and releases since the last sweep
	listeners listeners
}

// New returns a Locker with a Store of its own.
func New(opts ...locker.Option) (*locker.Client, error) {
	return NewStore().New(opts...)
}

// NewStore returns an empty Store.
func NewStore() *Store {
	s := &Store{}
	s.t = locktable.New(s.tokens)
	return s
}

// tokens reserves up to n tokens that end at the clock, as far as they are new. So tokens of a
// store that is made later are greater.
func (s *Store) tokens(_ string, n int) (first int64, got int) {
	now := time.Now().UnixMicro()
	first = max(s.lastToken+1, now-int64(n)+1)
	if s.lastToken == 0 || s.lastToken >= now {
		first = max(s.lastToken+1, now)
		now = first + int64(min(n, driver.TokensAhead)) - 1
	}
	s.lastToken = now
	return first, int(now - first + 1)
}

// New returns a Locker on s. Each stands for one process.
func (s *Store) New(opts ...locker.Option) (*locker.Client, error) {
	return locker.New(s.Driver(), opts...)
}

// Driver returns a driver on s, for tests that wrap it to make it fail. Give it
// to one [locker.New].
func (s *Store) Driver() driver.Driver { return storeDriver{s} }

// Keys returns the held keys in ascending order.
func (s *Store) Keys() []string {
	s.t.Mu.Lock()
	defer s.t.Mu.Unlock()
	keys, _ := s.t.Matching("*")
	return keys
}

// Holder returns who holds key, and the rest of the lease.
func (s *Store) Holder(key string) (owner string, left time.Duration, ok bool) {
	s.t.Mu.Lock()
	defer s.t.Mu.Unlock()
	h := s.t.Inspect(key)
	return h.Owner, h.Remaining, h.Held
}

// Break takes key from its holder, as an operator does who deletes it, and reports
// whether it was held. No waiter is notified, as in Redis: a waiter asks about once a
// second. The holder learns of it at its next renewal or Unlock, or at once with
// [locker.WithLossDetection]; until then two may be inside.
func (s *Store) Break(key string) bool {
	s.t.Mu.Lock()
	held := s.t.Live(key) != nil
	delete(s.t.Locks, key)
	s.t.Mu.Unlock()
	if held {
		s.listeners.changed(key)
	}
	return held
}

// Flush breaks every lock, as a store does that loses its data. Tokens go on
// growing.
func (s *Store) Flush() {
	s.t.Mu.Lock()
	keys := slices.Collect(maps.Keys(s.t.Locks))
	clear(s.t.Locks)
	s.t.Mu.Unlock()
	s.listeners.changed(keys...)
}

// tidy sweeps once in half as many calls as there are grants: expired ones that
// no caller asks for do not pile up, at a constant cost per call. s.t.Mu is held.
func (s *Store) tidy() {
	if s.ops++; 2*s.ops >= len(s.t.Locks) {
		s.ops = 0
		s.t.Sweep()
	}
}
