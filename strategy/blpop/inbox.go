package blpop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/uuid"
	"github.com/distlock/locker/internal/wake"
	"github.com/redis/go-redis/v9"
)

const (
	slice       = time.Second // one BLPOP; a broken connection is noticed after it
	perNode     = 16          // blocking connections to one node of a cluster
	giveUpTime  = 2 * time.Second
	giveUpSoon  = 20 * time.Millisecond
	pauseMin    = 20 * time.Millisecond // after an error
	pauseMax    = time.Second
	refusalTime = 30 * time.Second // how long a refusal to block is believed
	closeBudget = 300 * time.Millisecond
)

// inboxes are the lists a Locker blocks on: one, or on a cluster one for each slot
// it waits in.
//
// A BLPOP that is under way cannot be cancelled without the risk of losing an element that is
// pushed in that moment, so callers do not wait for it: a dispatcher blocks, and passes each
// element to the watch of its key.
type inboxes struct {
	d        *queueDriver
	id       string
	cluster  bool
	blocking *redisdriver.Blocking // nil: no connection to block on can be made
	log      *slog.Logger

	mu       sync.Mutex
	open     map[string]*inbox   // by name, those with watches
	nodes    map[string]int      // how many of them block on a node
	attempts int                 // so far, of all watches
	asked    map[string]*attempt // by claim id, those of all watches
	refused  time.Time           // until when BLPOP cannot be used
	closed   bool
	work     sync.WaitGroup // dispatchers and givings-up
}

func newInboxes(d *queueDriver) *inboxes {
	return &inboxes{
		d: d, id: uuid.New(4), cluster: d.IsCluster(), blocking: d.NewBlocking(slice), log: slog.New(slog.DiscardHandler),
		open: make(map[string]*inbox), nodes: make(map[string]int), asked: make(map[string]*attempt),
	}
}

// inbox is one list with watches. It is guarded by inboxes.mu.
type inbox struct {
	b       *inboxes
	name    string
	node    string
	blocks  bool // a dispatcher serves it; else its watches poll
	watches map[string]*watch
	awake   wake.Signal // of the dispatcher, which rests while nothing can be pushed
	popping bool
}

// watch implements [driver.Watch]. The Locker keeps one a key.
type watch struct {
	wake.Signal
	in    *inbox
	key   string
	asked []*attempt // under way, or refused or unanswered and perhaps granted the lock since
}

func (b *inboxes) watch(key, node string) (driver.Watch, error) {
	name := b.name(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, redis.ErrClosed
	}
	in := b.open[name]
	if in == nil {
		in = &inbox{b: b, name: name, node: node, watches: make(map[string]*watch), awake: wake.New()}
		b.open[name] = in
	}
	w := &watch{Signal: wake.New(), in: in, key: key}
	in.watches[key] = w
	in.block()
	return w, nil
}

// block starts a dispatcher for the inbox if there may be one; b.mu is held.
func (in *inbox) block() {
	b := in.b
	if in.blocks || b.blocking == nil || b.nodes[in.node] >= perNode || time.Now().Before(b.refused) {
		return
	}
	b.nodes[in.node]++
	in.blocks = true
	b.work.Go(in.dispatch)
}

// Close implements [driver.Watch]: what the process waits for is given up.
func (w *watch) Close() {
	in, b := w.in, w.in.b
	b.mu.Lock()
	if in.watches[w.key] == w { // else a later one has come before this one was closed
		delete(in.watches, w.key)
	}
	nudge := len(in.watches) == 0 && in.popping
	if len(in.watches) == 0 && !in.blocks && b.open[in.name] == in {
		delete(b.open, in.name)
	}
	in.awake.Send()
	var claims []driver.Claim
	for _, at := range w.asked {
		delete(b.asked, at.req.ID)
		if at.refused { // the Locker releases what was not answered
			claims = append(claims, at.req.Claim)
		}
	}
	w.asked = nil
	done := b.background(func(ctx context.Context) {
		b.giveUp(ctx, claims)
		if nudge {
			// It ends the BLPOP under way, by an element that names no claim.
			_ = b.blocking.Push(ctx, in.name, keepFor)
		}
	})
	b.mu.Unlock()
	// A round trip, so that the place is gone when the waiter's Lock returns.
	bound.Sleep(context.Background(), done, giveUpSoon)
}

// background runs f unless the Locker is closed; b.mu is held.
func (b *inboxes) background(f func(context.Context)) <-chan struct{} {
	done := make(chan struct{})
	if b.closed {
		close(done)
		return done
	}
	b.work.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
		defer cancel()
		f(ctx)
	})
	return done
}

func (b *inboxes) giveUp(ctx context.Context, claims []driver.Claim) {
	for _, c := range claims {
		// Best effort: the place goes stale, and a grant ends, in seconds.
		_ = b.d.giveUp(ctx, c)
	}
}

// dispatch serves the inbox while it has watches. It blocks on it while one of them may
// be pushed something.
func (in *inbox) dispatch() {
	b := in.b
	for pause := time.Duration(0); ; {
		b.mu.Lock()
		n := len(in.watches)
		in.popping = in.expects()
		if n == 0 || b.closed || time.Now().Before(b.refused) {
			in.blocks, in.popping = false, false
			b.nodes[in.node]--
			if n == 0 && b.open[in.name] == in {
				delete(b.open, in.name)
			}
			b.mu.Unlock()
			return
		}
		popping := in.popping
		b.mu.Unlock()
		if !popping {
			<-in.awake
			continue
		}

		messages, err := b.blocking.Pop(context.Background(), in.name, n > 1)
		if err == nil || errors.Is(err, redis.Nil) {
			b.pushed(messages)
			pause = 0
			continue
		}
		in.missed(err)
		pause = min(max(2*pause, pauseMin), pauseMax)
		time.Sleep(pause)
	}
}

// expects reports whether something may be pushed to the inbox; b.mu is held.
func (in *inbox) expects() bool {
	for _, w := range in.watches {
		if slices.ContainsFunc(w.asked, func(at *attempt) bool { return at.pushed == nil }) {
			return true
		}
	}
	return false
}

// missed wakes the waiters after a BLPOP failed: something may have been pushed and lost.
func (in *inbox) missed(err error) {
	b := in.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); driver.IsPermanent(err) && !b.closed && !now.Before(b.refused) {
		b.refused = now.Add(refusalTime)
		b.log.Warn("waiters poll, as BLPOP cannot be used", "strategy", b.d.Name(), "err", err)
	}
	for _, w := range in.watches {
		w.Send()
	}
}

// pushed handles the messages of releases: a claim and its tokens, which is a grant, or a
// claim alone, whose waiter then looks whether the lock is free.
func (b *inboxes) pushed(messages []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		words := strings.Fields(m)
		if len(words) == 0 {
			continue // a nudge
		}
		// A claim that is not waited with any more was given up, or will be.
		if at := b.asked[words[0]]; at != nil {
			if g := parseGrant(words[1:]); g != nil {
				at.pushed = g
			}
			at.w.Send()
		}
	}
}

// close ends the dispatchers. The Locker has closed its watches before.
func (b *inboxes) close() {
	b.mu.Lock()
	b.closed = true
	for _, in := range b.open {
		in.awake.Send()
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	bound.Sleep(context.Background(), done, closeBudget)
	if b.blocking != nil {
		b.blocking.Close()
	}
}
