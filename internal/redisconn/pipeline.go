package redisconn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// fewBatches may be in flight to a server at the same time, each with its share of the
	// commands: the server works on some while callers deal with the answers to others.
	fewBatches = 4
	// leastShare is how many commands a batch takes at least, if as many wait.
	leastShare = 16
	// slowBatch is the age from which a batch no longer counts towards fewBatches: the server is
	// distant, or a packet was lost.
	slowBatch = 3 * time.Millisecond
	// gatherFor is how long a command to a distant server waits for others, so that all that
	// callers do with the answers to one batch goes with the next.
	gatherFor = 200 * time.Microsecond
	// mostBatches is how many connections a pipeline takes.
	mostBatches = 8
	// batchBytes bounds what a batch writes before it reads the first answer.
	batchBytes = 64 << 10
	// workerIdle is how long a worker outlives its last batch.
	workerIdle = time.Second
)

// pipeline sends the commands of many callers to one server in few round trips. A command
// that comes while four batches are in flight waits until one of them is back, and goes with
// others that have gathered. So a busy server is sent fewer and longer messages, not more
// and more connections. A command that comes alone goes alone.
//
// Workers send the batches, with the client's timeouts. So a caller returns when its ctx
// ends, at which go-redis does not look while a command is on the wire, and the other
// commands of the batch keep their time.
type pipeline struct {
	cluster *redis.ClusterClient // set for a cluster: redirects commands that this node refuses
	client  *redis.Client        // nil: each command has its own run
	shared  bool                 // client uses the user's connections
	fast    *fastPath            // for a command that comes alone; or nil

	mu      sync.Mutex
	queue   []*Command // nil: its caller has returned
	taken   int        // how many were taken off the queue: the place of its first
	gaps    int        // how many of the queue are nil
	busy    []*worker
	idle    []*worker
	timer   *time.Timer // starts another batch when those in flight turn out to be slow
	timed   bool        // timer is set
	slow    int         // how many of the last batches came back slow, without a quick one between
	closed  bool
	waiters waiters
}

// do sends c and returns its error when c has a result, or is abandoned because ctx ends.
func (p *pipeline) do(ctx context.Context, c *Command) error {
	p.start(ctx, c)
	return p.await(ctx, c)
}

// start queues c, or runs it if it has its own run.
func (p *pipeline) start(ctx context.Context, c *Command) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.register(ctx, c)
	if c.run != nil {
		c.state = sent
		go func() {
			c.reply, c.err = c.run()
			p.resolve([]*Command{c})
		}()
	} else {
		c.state = queued
		c.place = p.taken + len(p.queue)
		p.queue = append(p.queue, c)
		p.startBatch()
	}
	if c.closing != nil && c.closing.Err() != nil {
		p.abandon(c, context.Canceled) // expire may have run before c was registered
	}
}

// queued returns how many commands wait to be sent; p.mu is held.
func (p *pipeline) queued() int { return len(p.queue) - p.gaps }

// startBatch lets a worker send what is queued, if another batch may be sent; p.mu is held.
func (p *pipeline) startBatch() {
	if p.mayStart() {
		p.startWorker()
	}
}

// startWorker lets a worker take a batch; p.mu is held.
func (p *pipeline) startWorker() {
	var w *worker
	if n := len(p.idle); n > 0 {
		w = p.idle[n-1]
		p.idle = p.idle[:n-1]
		w.since = time.Time{}
		w.wake <- true
	} else {
		w = &worker{pipeline: p, wake: make(chan bool, 1)}
		go w.work()
	}
	p.busy = append(p.busy, w)
}

// mayStart reports whether another batch may be sent. If not, it sets the timer that starts
// one when a batch in flight turns out to be slow, or others have gathered; p.mu is held.
func (p *pipeline) mayStart() bool {
	switch n := len(p.busy); {
	case n >= mostBatches || p.timed:
		return false
	case p.gathers():
		p.startIn(gatherFor)
		return false
	case n < fewBatches:
		return true
	}
	now, quick, next := time.Now(), 0, slowBatch
	for _, w := range p.busy {
		switch left := slowBatch - now.Sub(w.since); {
		case w.since.IsZero():
			quick++
		case left > 0:
			quick++
			next = min(next, left)
		}
	}
	if quick < fewBatches {
		return true
	}
	p.startIn(next)
	return false
}

// distant reports whether the server is far away: a busy one nearby has a quick batch among the
// slow ones. p.mu is held.
func (p *pipeline) distant() bool { return p.slow >= mostBatches }

// gathers reports whether what is queued waits for more commands. Without the wait, small
// batches to a distant server would soon occupy all connections, and every other command would
// wait for one of them to come back. Few commands cannot occupy them; p.mu is held.
func (p *pipeline) gathers() bool {
	n := p.queued()
	return p.distant() && n < p.share() && n+p.inFlight() > mostBatches
}

// startIn starts a batch after d; p.mu is held.
func (p *pipeline) startIn(d time.Duration) {
	p.timed = true
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timed = false
		switch {
		case p.queued() == 0:
		case !p.distant():
			p.startBatch()
		case len(p.busy) < mostBatches:
			p.startWorker()
		}
	})
}

// worker sends one batch after the other.
type worker struct {
	pipeline *pipeline
	wake     chan bool // receives true for more work, false to end
	since    time.Time // when the batch was taken; zero: not yet
	batch    []*Command
}

func (w *worker) work() {
	timeout := time.NewTimer(workerIdle)
	defer timeout.Stop()
	for {
		switch {
		case w.takeBatch():
			w.pipeline.send(w.batch)
		case !w.rest(timeout):
			return
		}
	}
}

// takeBatch takes the worker's share off the queue. If nothing is queued, or what is queued
// waits for more, the worker is idle.
func (w *worker) takeBatch() bool {
	p := w.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(w.batch) > 0 { // a batch is back
		if p.slow++; time.Since(w.since) <= slowBatch {
			p.slow = 0
		}
		w.batch = w.batch[:0]
		if p.gathers() {
			p.rest(w)
			p.startBatch()
			return false
		}
	}
	bytes, share, n := 0, p.share(), 0
	for ; n < len(p.queue) && len(w.batch) < share; n++ {
		c := p.queue[n]
		if c == nil {
			p.gaps--
			continue
		}
		if bytes += size(c.Words); len(w.batch) > 0 && bytes > batchBytes {
			break
		}
		c.state = sent
		w.batch = append(w.batch, c)
	}
	p.queue = slices.Delete(p.queue, 0, n)
	p.taken += n
	if len(w.batch) == 0 {
		p.rest(w)
		return false
	}
	w.since = time.Now()
	if p.queued() > 0 {
		p.startBatch()
	}
	return true
}

// rest makes a busy worker idle, or ends it; p.mu is held.
func (p *pipeline) rest(w *worker) {
	p.busy = slices.DeleteFunc(p.busy, func(o *worker) bool { return o == w })
	if p.closed {
		w.wake <- false
	} else {
		p.idle = append(p.idle, w)
	}
}

// inFlight returns how many commands are on their way; p.mu is held.
func (p *pipeline) inFlight() (n int) {
	for _, w := range p.busy {
		n += len(w.batch)
	}
	return n
}

// share returns how many commands a batch takes; p.mu is held.
func (p *pipeline) share() int {
	n := p.queued() + p.inFlight()
	return max(leastShare, (n+fewBatches-1)/fewBatches)
}

// rest waits for more work, and reports false if there is none for a while.
func (w *worker) rest(timeout *time.Timer) bool {
	timeout.Reset(workerIdle)
	select {
	case more := <-w.wake:
		return more
	case <-timeout.C:
	}
	p := w.pipeline
	p.mu.Lock()
	i := slices.Index(p.idle, w)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	return i < 0 && <-w.wake // it was woken at that moment
}

func (p *pipeline) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// close ends the idle workers. Busy ones end when they are through.
func (p *pipeline) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		w.wake <- false
	}
	p.idle = nil
}
