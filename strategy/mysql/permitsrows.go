package mysql

import (
	"sync"
	"time"
)

const (
	// spareKept is how long a row without a claim is kept in the table.
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
