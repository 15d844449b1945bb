// Package outbox calls the user's code in the background, so that nothing waits for it.
package outbox

import (
	"sync"
	"time"
)

// Outbox is a queue of calls. A goroutine makes them, one at a time and in order, while there
// are some. The zero value is ready.
type Outbox struct {
	mu      sync.Mutex
	pending []call
	made    uint64        // calls that were begun
	dropped int           // calls dropped since the last that was taken
	total   uint64        // calls dropped in all
	running chan struct{} // closed when the goroutine ends; nil: there is none
}

type call struct {
	f        func(dropped int)
	dropped  int       // calls dropped before this one
	panicked func(any) // may be nil
}

// Push queues a call of f with the number of calls that were dropped before it. It reports
// whether f will be called: f is dropped if room calls are waiting. panicked, which may be nil,
// is called if f panics. Push does not block.
func (o *Outbox) Push(room int, f func(dropped int), panicked func(any)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) >= room {
		o.dropped++
		o.total++
		return false
	}
	o.pending = append(o.pending, call{f, o.dropped, panicked})
	o.dropped = 0
	if o.running == nil {
		o.running = make(chan struct{})
		go o.drain()
	}
	return true
}

// Dropped returns how many calls were dropped.
func (o *Outbox) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// Len returns how many calls wait.
func (o *Outbox) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// drain makes the calls, until there are none.
func (o *Outbox) drain() {
	through := false
	defer func() {
		if !through {
			go o.drain() // the user's code has ended this goroutine
		}
	}()
	for {
		next, ok := o.take()
		if !ok {
			through = true
			return
		}
		next.make()
	}
}

func (o *Outbox) take() (next call, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending) == 0 {
		o.pending = nil
		close(o.running)
		o.running = nil
		return call{}, false
	}
	next = o.pending[0]
	o.pending[0] = call{}
	o.pending = o.pending[1:]
	o.made++
	return next, true
}

func (c *call) make() {
	defer func() {
		if v := recover(); v != nil && c.panicked != nil {
			c.panicked(v)
		}
	}()
	c.f(c.dropped)
}

// Close waits until all calls are made: for grace, and for grace again and again while calls go on being
// made, until most. It drops the calls that wait then.
func (o *Outbox) Close(grace time.Duration, most time.Time) {
	for o.await(earlier(time.Now().Add(grace), most)) && time.Now().Before(most) {
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped += len(o.pending)
	o.total += uint64(len(o.pending))
	o.pending = nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// await waits until all calls are made, but not beyond end. It reports whether there are
// more, and some were made meanwhile.
func (o *Outbox) await(end time.Time) bool {
	o.mu.Lock()
	running, before := o.running, o.made
	o.mu.Unlock()
	if running == nil {
		return false
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-running:
		return false
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made > before
}
