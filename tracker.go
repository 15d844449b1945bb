package locker

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// tracker counts what runs on behalf of a Locker, so that Close can wait for it.
type tracker struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // made by done
}

// begin reports false after close.
func (t *tracker) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.running++
	return true
}

// beginAlways is for work that follows from what begin let in.
func (t *tracker) beginAlways() {
	t.mu.Lock()
	t.running++
	t.mu.Unlock()
}

func (t *tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// close refuses further begins; it reports whether it was the first.
func (t *tracker) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.closed
	t.closed = true
	return first
}

// done is closed when nothing runs any more.
func (t *tracker) done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.idle
	switch {
	case t.running == 0:
		idle = make(chan struct{})
		close(idle)
	case idle == nil:
		idle = make(chan struct{})
		t.idle = idle
	}
	return idle
}

// newUUID returns a UUID that is random but for its version digit.
func newUUID(version int) string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails since Go 1.24
	u[6] = u[6]&0x0f | byte(version)<<4
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:], u[10:])
	return string(b[:])
}
