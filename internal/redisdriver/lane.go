package redisdriver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// fewBatches are on their way to a server at the same time, and each takes its share of
	// the commands there are: the server works on some while callers deal with the answers
	// to others.
	fewBatches = 4
	// leastShare is what a batch takes at least, if as many commands wait.
	leastShare = 16
	// slowBatch is how long a batch is on its way until it does not count for that:
	// the way to the server is long, or a packet was lost.
	slowBatch = 3 * time.Millisecond
	// mostBatches is how many connections a lane takes.
	mostBatches = 8
	// batchBytes bounds what a batch writes before it reads the first answer.
	batchBytes = 64 << 10
	// idleWorker is how long a goroutine of the lane outlives its last batch.
	idleWorker = time.Second
)

// lane takes the commands of many callers to one server in few round trips: a command
// that comes while four batches are on their way waits for one of them to be back, and
// goes with others that have gathered. So a busy server is sent fewer and longer messages,
// not more and more connections. A command that comes alone goes alone.
//
// The lane's own goroutines send the batches, with the client's timeouts, so that a
// caller leaves when its ctx ends, which go-redis does not look at while a command is on
// the wire, and the others of the batch have their time.
type lane struct {
	cluster *redis.ClusterClient // knows the right node for a command that to refuses; or nil
	to      *redis.Client        // nil: each command has a way of its own
	given   bool                 // to is on the caller's connections
	direct  *direct              // the way of a command that is alone; or nil

	mu     sync.Mutex
	queue  []*flight // nil: its caller has left
	taken  int       // how many were taken off the queue: the place of its first
	gone   int       // how many of the queue are nil
	busy   []*worker
	parked []*worker
	timer  *time.Timer // sends what waits for batches that turn out to be slow
	timed  bool        // it is set
	closed bool
	waits  waits
}

// do sends f, and returns when it is answered or ctx ends. left says that the command
// may be on its way; f.over is closed when it is not any more.
func (l *lane) do(ctx context.Context, f *flight) (left bool, err error) {
	l.start(ctx, f)
	return l.await(ctx, f)
}

func (l *lane) start(ctx context.Context, f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter(ctx, f)
	if f.run != nil {
		f.state = flightSent
		go func() {
			f.reply, f.err = f.run()
			l.answered([]*flight{f})
		}()
	} else {
		f.state = flightQueued
		f.place = l.taken + len(l.queue)
		l.queue = append(l.queue, f)
		l.startBatch()
	}
	if f.locker != nil && f.locker.Err() != nil {
		l.leave(f, context.Canceled) // endWaits may have been through before
	}
}

// idle reports whether no command is on its way.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.busy)+l.queued() == 0
}

// queued is how many commands wait to be taken; l.mu is held.
func (l *lane) queued() int { return len(l.queue) - l.gone }

// startBatch has a worker send what waits, if another batch may be sent; l.mu is held.
func (l *lane) startBatch() {
	if !l.mayStart() {
		return
	}
	var w *worker
	if n := len(l.parked); n > 0 {
		w = l.parked[n-1]
		l.parked = l.parked[:n-1]
		w.since = time.Time{}
		w.wake <- true
	} else {
		w = &worker{lane: l, wake: make(chan bool, 1)}
		go w.work()
	}
	l.busy = append(l.busy, w)
}

// mayStart reports whether another batch may be sent. If not, it sees to it that what waits
// is sent when one of those on their way turns out to be slow; l.mu is held.
func (l *lane) mayStart() bool {
	switch n := len(l.busy); {
	case n < fewBatches:
		return true
	case n >= mostBatches || l.timed:
		return false
	}
	now, quick, next := time.Now(), 0, slowBatch
	for _, w := range l.busy {
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
	l.timed = true
	if l.timer != nil {
		l.timer.Reset(next)
		return false
	}
	l.timer = time.AfterFunc(next, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timed = false; l.queued() > 0 {
			l.startBatch()
		}
	})
	return false
}

// worker sends one batch after the other.
type worker struct {
	lane  *lane
	wake  chan bool // receives that there is more to do, or not
	since time.Time // when the batch was taken; zero: not yet
	batch []*flight
}

func (w *worker) work() {
	idle := time.NewTimer(idleWorker)
	defer idle.Stop()
	for {
		switch {
		case w.take():
			w.lane.send(w.batch)
		case !w.park(idle):
			return
		}
	}
}

// take takes what waits. If there is nothing the worker is not busy any more.
func (w *worker) take() bool {
	l := w.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	w.batch = w.batch[:0]
	bytes, share, n := 0, l.share(), 0
	for ; n < len(l.queue) && len(w.batch) < share; n++ {
		f := l.queue[n]
		if f == nil {
			l.gone--
			continue
		}
		if bytes += f.in.size(); len(w.batch) > 0 && bytes > batchBytes {
			break
		}
		f.state = flightSent
		w.batch = append(w.batch, f)
	}
	l.queue = slices.Delete(l.queue, 0, n)
	l.taken += n
	if len(w.batch) == 0 {
		l.busy = slices.DeleteFunc(l.busy, func(o *worker) bool { return o == w })
		if l.closed {
			w.wake <- false
		} else {
			l.parked = append(l.parked, w)
		}
		return false
	}
	w.since = time.Now()
	if l.queued() > 0 {
		l.startBatch()
	}
	return true
}

// share is how many commands a batch takes; l.mu is held.
func (l *lane) share() int {
	n := l.queued()
	for _, w := range l.busy {
		n += len(w.batch)
	}
	return max(leastShare, (n+fewBatches-1)/fewBatches)
}

// park waits for more to do, and reports false if there is none for a while.
func (w *worker) park(idle *time.Timer) bool {
	idle.Reset(idleWorker)
	select {
	case more := <-w.wake:
		return more
	case <-idle.C:
	}
	l := w.lane
	l.mu.Lock()
	i := slices.Index(l.parked, w)
	if i >= 0 {
		l.parked = slices.Delete(l.parked, i, i+1)
	}
	l.mu.Unlock()
	return i < 0 && <-w.wake // it was called at that moment
}

func (l *lane) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close ends the workers that wait. Those that are busy end when they are through.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, w := range l.parked {
		w.wake <- false
	}
	l.parked = nil
}
