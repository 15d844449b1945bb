package locker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// fake is a driver and its store, in memory. What becomes of each command can be
// scripted; unscripted ones are obeyed at once. It notes all that it is sent.
type fake struct {
	start time.Time

	mu      sync.Mutex
	holds   map[string]*fakeHold
	token   int64
	joins   bool // another claim of the holder's owner is let in
	mute    bool // releases are not signalled
	blocks  bool // tokens are reserved
	watches map[*fakeWatch]struct{}

	script  map[op][]step // for the next commands, one each
	rest    map[op]step   // for those after them
	log     []*command
	running map[op]int
	most    map[op]int // that ran at the same time
	closes  int
	renews  int           // calls of Renew
	closing time.Duration // how long Close takes
}

type fakeHold struct {
	owner  string
	token  int64
	claims map[string]int // holds by claim id
	until  time.Time
}

func newFake() *fake {
	return &fake{
		start:   time.Now(),
		holds:   make(map[string]*fakeHold),
		watches: make(map[*fakeWatch]struct{}),
		script:  make(map[op][]step),
		rest:    make(map[op]step),
		running: make(map[op]int),
		most:    make(map[op]int),
	}
}

// held returns who holds key, "" if nobody does.
func (f *fake) held(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.hold(key); h != nil {
		return h.owner
	}
	return ""
}

// seize gives key to somebody who is no Locker, whoever holds it.
func (f *fake) seize(key, owner string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token++
	f.holds[key] = &fakeHold{owner: owner, token: f.token, claims: map[string]int{owner: 1}, until: time.Now().Add(d)}
}

// free drops key, whoever holds it, and signals it unless muted.
func (f *fake) free(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(key)
}

// The methods below need f.mu.

func (f *fake) hold(key string) *fakeHold {
	if h := f.holds[key]; h != nil && time.Now().Before(h.until) {
		return h
	}
	return nil
}

// holdOf is the hold that c is part of.
func (f *fake) holdOf(c driver.Claim) *fakeHold {
	if h := f.hold(c.Key); h != nil && h.claims[c.ID] > 0 {
		return h
	}
	return nil
}

func (f *fake) drop(key string) {
	delete(f.holds, key)
	if !f.mute {
		f.signalAll(key)
	}
}

func (f *fake) signalAll(key string) {
	for w := range f.watches {
		if w.key == key && !w.ended {
			select {
			case w.c <- struct{}{}:
			default:
			}
		}
	}
}

// Name implements [Driver].
func (f *fake) Name() string { return "fake" }

// Acquire implements [Driver].
func (f *fake) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	c := &command{op: opAcquire, Request: req}
	err := f.do(ctx, c, func() error {
		h := f.hold(req.Key)
		switch {
		case h == nil:
			f.token++
			h = &fakeHold{owner: req.Owner, token: f.token, claims: make(map[string]int)}
			f.holds[req.Key] = h
		case h.claims[req.ID] == 0 && !(f.joins && h.owner == req.Owner):
			c.answer = driver.Answer{Remaining: time.Until(h.until), Owner: h.owner}
			return nil
		}
		h.claims[req.ID] = max(1, h.claims[req.ID])
		if until := time.Now().Add(req.TTL); until.After(h.until) {
			h.until = until
		}
		c.answer = driver.Answer{Granted: true}
		if req.Fencing {
			c.answer.Token = h.token
		}
		if f.blocks && req.Tokens > 1 && h.token == f.token {
			f.token += int64(req.Tokens) - 1
			c.answer.Tokens = req.Tokens
		}
		return nil
	})
	if err != nil {
		return driver.Answer{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return c.answer, nil
}

// Renew implements [Driver]: one claim after the other.
func (f *fake) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	f.mu.Lock()
	f.renews++
	call := f.renews
	f.mu.Unlock()
	for i, cl := range claims {
		answer(i, f.do(ctx, &command{op: opRenew, Request: driver.Request{Claim: cl}, call: call}, func() error {
			h := f.holdOf(cl)
			if h == nil {
				return ErrLost
			}
			if until := time.Now().Add(cl.TTL); until.After(h.until) {
				h.until = until
			}
			return nil
		}))
	}
}

// Release implements [Driver].
func (f *fake) Release(ctx context.Context, cl driver.Claim) error {
	return f.do(ctx, &command{op: opRelease, Request: driver.Request{Claim: cl}}, func() error {
		h := f.holdOf(cl)
		if h == nil {
			return ErrLost
		}
		if delete(h.claims, cl.ID); len(h.claims) == 0 {
			f.drop(cl.Key)
		}
		return nil
	})
}

// Close implements [Driver].
func (f *fake) Close() error {
	bound.Sleep(context.Background(), nil, f.closing)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closes++
	return nil
}

// The optional interfaces of a driver.
type (
	fakeCounter  struct{ f *fake }
	fakeNotifier struct{ f *fake }
	fakeSharder  struct{}
)

// SetHolds implements [HoldCounter].
func (h fakeCounter) SetHolds(ctx context.Context, cl driver.Claim, n int) error {
	return h.f.do(ctx, &command{op: opSetHolds, Request: driver.Request{Claim: cl}, holds: n}, func() error {
		hold := h.f.holdOf(cl)
		if hold == nil {
			return ErrLost
		}
		hold.claims[cl.ID] = n
		return nil
	})
}

// Shard implements [Sharder]: what stands before the slash.
func (fakeSharder) Shard(key string) string {
	shard, _, _ := strings.Cut(key, "/")
	return shard
}

// Watch implements [Notifier].
func (n fakeNotifier) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w := &fakeWatch{f: n.f, key: key, c: make(chan struct{}, 1)}
	err := n.f.do(ctx, &command{op: opWatch, Request: driver.Request{Claim: driver.Claim{Key: key}}}, func() error {
		n.f.watches[w] = struct{}{}
		return nil
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

type fakeWatch struct {
	f     *fake
	key   string
	c     chan struct{}
	ended bool
}

func (w *fakeWatch) C() <-chan struct{} { return w.c }

func (w *fakeWatch) Close() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	delete(w.f.watches, w)
}

// signal makes the watches of key signal.
func (f *fake) signal(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signalAll(key)
}

// endWatches ends all watches as a server that goes away does.
func (f *fake) endWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watches {
		if !w.ended {
			w.ended = true
			close(w.c)
		}
	}
}

// watching is how many watches are open.
func (f *fake) watching() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watches)
}

// kind is what a driver can do.
type kind int

const (
	plain kind = iota
	counting
	notifying
	sharding
)

// as is f as a driver of kind k.
func (f *fake) as(k kind) driver.Driver {
	f.joins = k == counting
	switch k {
	case counting:
		return struct {
			*fake
			fakeCounter
		}{f, fakeCounter{f}}
	case notifying:
		return struct {
			*fake
			fakeNotifier
		}{f, fakeNotifier{f}}
	case sharding:
		return struct {
			*fake
			fakeSharder
		}{f, fakeSharder{}}
	}
	return f
}
