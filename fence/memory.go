package fence

import (
	"context"
	"sync"
)

// Memory is a Guard in the memory of this process, for a resource that lives there too, and for
// tests. It keeps about a hundred bytes and the key for each key that it has admitted, and they
// go with the process: where the resource outlives the process, the guard has to as well. The zero Memory is ready.
type Memory struct {
	mu   sync.Mutex
	seen map[string]int64
}

// NewMemory returns a Memory that has admitted nothing.
func NewMemory() *Memory { return new(Memory) }

// Admit implements [Guard]. A context that has ended admits nothing.
func (m *Memory) Admit(ctx context.Context, key string, token int64) error {
	return m.Do(ctx, key, token, func() error { return nil })
}

// Do calls write if token is admitted, and returns its error. No other token of any key is
// admitted meanwhile: the comparison and the write are one step, as long as all writes of the
// resource go through this Memory.
func (m *Memory) Do(ctx context.Context, key string, token int64, write func() error) error {
	if err := Validate(key, token); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil { // looked at after the wait for the mutex
		return context.Cause(ctx)
	}
	if seen := m.seen[key]; seen > token {
		return &StaleError{Key: key, Token: token, Seen: seen}
	}
	if m.seen == nil {
		m.seen = make(map[string]int64)
	}
	m.seen[key] = token
	return write()
}
