package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

var _ interface {
	driver.Driver
	driver.Notifier
	driver.Inspector
} = storeDriver{}

type storeDriver struct{ s *Store }

func (storeDriver) Name() string { return "memory" }

// Acquire implements [driver.Driver].
func (d storeDriver) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := dead(ctx); err != nil {
		return driver.Answer{}, err
	}
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tidy(now)
	g, tokens := s.holder(req.Key, now), 0
	switch {
	case g == nil:
		g = &grant{id: req.ID, owner: req.Owner, since: now}
		if req.Fencing {
			g.token, tokens = s.token(now, req.Tokens), req.Tokens
		}
		s.held[req.Key] = g
	case g.id != req.ID:
		return driver.Answer{Remaining: g.until.Sub(now), Owner: g.owner}, nil
	}
	g.extend(now, req.TTL)
	return driver.Answer{Granted: true, Token: g.token, Tokens: tokens}, nil
}

// Renew implements [driver.Driver].
func (d storeDriver) Renew(ctx context.Context, claims []driver.Claim, answer func(i int, err error)) {
	// answer is not called under the mutex: it may come back to the store.
	for i, c := range claims {
		answer(i, d.renew(ctx, c))
	}
}

func (d storeDriver) renew(ctx context.Context, c driver.Claim) error {
	if err := dead(ctx); err != nil {
		return err
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	now := time.Now()
	g := d.s.holder(c.Key, now)
	if g == nil || g.id != c.ID {
		return errLost
	}
	g.extend(now, c.TTL)
	return nil
}

// Release implements [driver.Driver].
func (d storeDriver) Release(ctx context.Context, c driver.Claim) error {
	if err := dead(ctx); err != nil {
		return err
	}
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	defer s.tidy(now)
	g := s.held[c.Key]
	if g == nil || g.id != c.ID {
		return errLost
	}
	s.drop(c.Key)
	if !now.Before(g.until) {
		return errLost
	}
	return nil
}

func (storeDriver) Close() error { return nil }

// Watch implements [driver.Notifier].
func (d storeDriver) Watch(ctx context.Context, key string) (driver.Watch, error) {
	if err := dead(ctx); err != nil {
		return nil, err
	}
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{s: s, key: key, c: make(chan struct{}, 1)}
	if s.watches[key] == nil {
		s.watches[key] = make(map[*watch]struct{})
	}
	s.watches[key][w] = struct{}{}
	return w, nil
}

type watch struct {
	s   *Store
	key string
	c   chan struct{}
}

func (w *watch) C() <-chan struct{} { return w.c }

func (w *watch) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watches[w.key], w)
	if len(w.s.watches[w.key]) == 0 {
		delete(w.s.watches, w.key)
	}
}

// extend makes the grant last ttl from now, never less than it has left.
func (g *grant) extend(now time.Time, ttl time.Duration) {
	if until := now.Add(ttl); until.After(g.until) {
		g.until = until
	}
}

// dead refuses a command whose caller is gone already. Nothing here blocks, so
// that asking once is enough.
func dead(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &driver.StoreError{Err: err, NotApplied: true}
	}
	return nil
}

var errLost = fmt.Errorf("the claim does not hold the key: %w", locker.ErrLost)
