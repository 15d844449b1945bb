package blpop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	slice       = time.Second // one BLPOP; a broken connection is noticed after it
	perNode     = 16          // blocking connections to one node of a cluster
	giveUpTime  = 2 * time.Second
	giveUpSoon  = 20 * time.Millisecond
	pauseMin    = 20 * time.Millisecond // after an error
	pauseMax    = time.Second
	keepInbox   = 5 * time.Second
	closeBudget = 300 * time.Millisecond
)

// inboxes are the lists a Locker blocks on: one, or on a cluster one for each slot
// it waits in.
//
// A BLPOP that is under way cannot be cancelled without the risk of losing what is
// pushed in that moment, so callers do not wait for it: a dispatcher blocks, and passes
// on what it gets to the watch of the key. A grant of a key without a watch goes back
// to the queue.
type inboxes struct {
	d        *queueDriver
	id       string
	cluster  bool
	blocking *redisdriver.Blocking // nil: no connection to block on can be made

	mu      sync.Mutex
	open    map[string]*inbox        // by name, those with watches
	nodes   map[string]int           // how many of them block on a node
	leaving map[string]chan struct{} // by lock key, closed when a giving-up is through
	closed  bool
	work    sync.WaitGroup // dispatchers and givings-up
}

func newInboxes(d *queueDriver) *inboxes {
	return &inboxes{
		d: d, id: uuid.New(4), cluster: d.IsCluster(), blocking: d.NewBlocking(slice),
		open: make(map[string]*inbox), nodes: make(map[string]int), leaving: make(map[string]chan struct{}),
	}
}

// name is the inbox for a lock key. All of a Locker's keys share it; a script may
// push only to keys of its own slot, so on a cluster it is one for each slot.
func (b *inboxes) name(key string) string {
	if b.cluster {
		return "locker:inbox:{" + redisdriver.SlotTag(key) + "}:" + b.id
	}
	return "locker:inbox:" + b.id
}

// inbox is one list with watches. It is guarded by inboxes.mu.
type inbox struct {
	b       *inboxes
	name    string
	node    string
	blocks  bool // a dispatcher serves it; else its watches poll
	watches map[string]*watch
}

// watch implements [driver.Watch]. The Locker keeps one a key.
type watch struct {
	in  *inbox
	key string
	c   chan struct{}
}

func (w *watch) C() <-chan struct{} { return w.c }

func (w *watch) signal() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// refused is told of an attempt that queued for key and was not granted it. It
// reports whether a dispatcher blocks for key. If key has no watch any more (the
// waiter left while the attempt was under way) the place is given up.
func (b *inboxes) refused(key string) (blocks bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.open[b.name(key)]
	if in == nil || in.watches[key] == nil {
		b.leave(key)
		return false
	}
	return in.blocks
}

// leave gives the place in the queue of key up, in the background. Called under
// b.mu.
func (b *inboxes) leave(key string, after ...func(context.Context)) <-chan struct{} {
	before, done := b.leaving[key], make(chan struct{})
	if b.closed {
		close(done)
		return done
	}
	b.leaving[key] = done
	b.work.Go(func() {
		if before != nil {
			<-before
		}
		ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
		defer cancel()
		// Best effort: the place goes stale, and a grant ends, in seconds.
		_ = b.d.giveUp(ctx, key)
		for _, f := range after {
			f(ctx)
		}
		b.mu.Lock()
		if b.leaving[key] == done {
			delete(b.leaving, key)
		}
		b.mu.Unlock()
		close(done)
	})
	return done
}

// left waits until a place in the queue of key that is being given up is gone: a
// new one must not be taken for it.
func (b *inboxes) left(ctx context.Context, key string) error {
	b.mu.Lock()
	done := b.leaving[key]
	b.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *inboxes) watch(ctx context.Context, key string) (driver.Watch, error) {
	if err := b.left(ctx, key); err != nil {
		return nil, err
	}
	node, err := b.d.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	name := b.name(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, redis.ErrClosed
	}
	in := b.open[name]
	if in == nil {
		in = &inbox{b: b, name: name, node: node, watches: make(map[string]*watch)}
		b.open[name] = in
		if b.blocking != nil && b.nodes[node] < perNode {
			b.nodes[node]++
			in.blocks = true
			b.work.Go(in.dispatch)
		}
	}
	w := &watch{in: in, key: key, c: make(chan struct{}, 1)}
	in.watches[key] = w
	return w, nil
}

// Close implements [driver.Watch].
func (w *watch) Close() {
	in, b := w.in, w.in.b
	b.mu.Lock()
	if in.watches[w.key] != w {
		b.mu.Unlock()
		return
	}
	delete(in.watches, w.key)
	last := len(in.watches) == 0
	if last && !in.blocks {
		delete(b.open, in.name)
	}
	var done <-chan struct{}
	if last && in.blocks {
		done = b.leave(w.key, in.nudge)
	} else {
		done = b.leave(w.key)
	}
	b.mu.Unlock()
	// A round trip, so that the place is gone when the waiter's Lock returns.
	redisdriver.WaitFor(done, giveUpSoon)
}

// nudge ends the BLPOP under way, with an element that names no key.
func (in *inbox) nudge(ctx context.Context) {
	_ = in.b.blocking.Push(ctx, in.name, keepInbox)
}

// dispatch blocks on the inbox while it has watches.
func (in *inbox) dispatch() {
	b := in.b
	pause := time.Duration(0)
	for {
		b.mu.Lock()
		if len(in.watches) == 0 {
			delete(b.open, in.name)
			b.nodes[in.node]--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()

		key, err := b.blocking.Pop(context.Background(), in.name)
		b.mu.Lock()
		switch w := in.watches[key]; {
		case err == nil && w != nil:
			w.signal()
		case err == nil && key != "":
			b.leave(key) // granted to a watch that has just been closed
		case err != nil && !errors.Is(err, redis.Nil):
			// Something may have been pushed and lost.
			for _, w := range in.watches {
				w.signal()
			}
		}
		b.mu.Unlock()
		if err == nil || errors.Is(err, redis.Nil) {
			pause = 0
			continue
		}
		pause = min(max(2*pause, pauseMin), pauseMax)
		time.Sleep(pause)
	}
}

// close ends the dispatchers. The Locker has closed its watches before.
func (b *inboxes) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	redisdriver.WaitFor(done, closeBudget)
	if b.blocking != nil {
		b.blocking.Close()
	}
}
