package mysql

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// spareKept is how long a row without a claim is kept in the table at least.
	spareKept = time.Minute
	// mostSpares is how many such rows a Locker remembers.
	mostSpares = 4096
)

// spares are rows of the table of permits that are no claims, by the hash of their key: a grant makes one its claim, and
// needs no statement that inserts a row. Each is used by one attempt at a time. A row that is wrongly
// among them costs a statement more: the statement that uses it finds that it is not there, or is a claim.
type spares struct {
	mu  sync.Mutex
	n   int
	all map[string][]spare
}

type spare struct {
	claim []byte
	since time.Time
}

// take returns the claim of a row, or nil. The newest goes first, so that those that are not needed grow old.
func (s *spares) take(hash []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all[string(hash)]
	if len(of) == 0 {
		return nil
	}
	last := of[len(of)-1]
	s.keep(string(hash), of[:len(of)-1])
	if time.Since(last.since) > spareKept/2 { // so are those below it
		s.keep(string(hash), nil)
		return nil
	}
	return last.claim
}

// put remembers a row. When there are too many it forgets those of some key: they are deleted from the table when they are old.
func (s *spares) put(hash, claim []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string][]spare)
	}
	if s.n >= mostSpares {
		for other := range s.all {
			s.keep(other, nil)
			break
		}
	}
	s.keep(string(hash), append(s.all[string(hash)], spare{claim, time.Now()}))
}

// keep sets the rows of a key. It needs the mutex.
func (s *spares) keep(hash string, of []spare) {
	s.n += len(of) - len(s.all[hash])
	if len(of) == 0 {
		delete(s.all, hash)
		return
	}
	s.all[hash] = of
}

// refusals remembers keys of which a request was refused. It may be wrong, which costs a statement more.
type refusals [1024]atomic.Uint64 // beginnings of hashes; 0: none

func (r *refusals) slot(hash []byte) (*atomic.Uint64, uint64) {
	n := binary.BigEndian.Uint64(hash)
	return &r[n%uint64(len(r))], n
}

func (r *refusals) note(hash []byte) {
	slot, n := r.slot(hash)
	slot.Store(n)
}

// last reports whether the last request for the key that had an answer was refused.
func (r *refusals) last(hash []byte) bool {
	slot, n := r.slot(hash)
	return slot.Load() == n
}

func (r *refusals) drop(hash []byte) {
	slot, n := r.slot(hash)
	slot.CompareAndSwap(n, 0)
}
