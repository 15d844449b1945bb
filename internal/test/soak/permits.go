package soak

import (
	"context"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/bound"
)

// lockFunc is a Lock, or what does the like for a key with permits.
type lockFunc = func(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error)

// weight is how many permits the next call asks for; 0 of a lock.
func (c *caller) weight() int {
	switch {
	case c.permits == 0:
		return 0
	case c.permits < driver.MaxPermits:
		return 1 + c.r.IntN(c.permits)*c.r.IntN(2) // half of the calls ask for one
	case c.oneIn(4):
		return driver.MaxPermits // a writer
	}
	return 1
}

// lock returns the calls that wait for n permits, and that try once.
func (c *caller) lock(n int) (lock, try lockFunc) {
	switch {
	case n == 0:
		return c.locker.Lock, c.locker.TryLock
	case c.permits < driver.MaxPermits:
		lock = func(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			s, err := locker.NewSemaphore(c.locker, key, c.permits)
			if err != nil {
				return nil, err
			}
			return s.AcquireN(ctx, n, opts...)
		}
	default:
		lock = func(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
			rw, err := locker.NewRWLock(c.locker, key)
			switch {
			case err != nil:
				return nil, err
			case n == 1:
				return rw.RLock(ctx, opts...)
			}
			return rw.Lock(ctx, opts...)
		}
	}
	return lock, func(ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		return lock(ctx, key, append(opts, locker.WithWait(0))...)
	}
}

// checkPermits wants the holds of a key that overlap to have no more permits than there are, and
// each a token of its own.
func (h *history) checkPermits(k *keyHistory) {
	var inside []*hold
	tokens := make(map[int64]*hold, len(k.holds))
	for _, next := range k.holds {
		if next.deadline <= next.ret {
			continue // it was over when its caller was told of it
		}
		if before := tokens[next.token]; before != nil {
			h.violate(TokenOrder, k.key, span{before.ret, next.ret}, "%v, was granted after %v", next, before)
		}
		tokens[next.token] = next
		inside = slices.DeleteFunc(inside, func(x *hold) bool { return x.end() <= next.ret })
		inside = append(inside, next)
		sum, lost := 0, 0
		for _, x := range inside {
			if h.lost(x, next.ret) {
				lost += x.permits
			} else {
				sum += x.permits
			}
		}
		switch {
		case sum > h.permits:
			h.violate(Overlap, k.key, span{inside[0].ret, next.ret}, "%v, was granted, and with it %d of %d permits were out: %v", next, sum, h.permits, inside)
		case sum+lost > h.permits:
			h.count[Regranted]++
		}
	}
}

// leftPermits are permits of a key that are out when all is over.
type leftPermits struct {
	strategy int
	key      uint16
	n        int
	err      error // of the last look
}

// leaked notes permits that were left, beside the last grant of their key.
func (h *history) leaked(l leftPermits) {
	var last instant
	for _, x := range h.at(l.key).holds {
		last = max(last, x.ret)
	}
	h.violate(Leak, l.key, span{last, last}, "all processes have ended, and %d permits are out, %v", l.n, l.err)
}

// checkFree looks for permits that are out in the store once the processes have ended, and the TTL of
// those that were killed is over.
func (a *arena) checkFree(end time.Time) {
	for i, s := range a.strategies {
		if s.Permits == 0 {
			continue
		}
		clients := a.spec.Route.clients()
		l, err := s.New(Process{Clients: clients, Addrs: a.spec.Route.Own})
		if err != nil {
			a.stage.Fatal(err)
		}
		client, _ := locker.ClientOf(l)
		for n := range a.cfg.Keys {
			for {
				h, err := client.Inspect(a.stage.ctx, s.key(n))
				if err == nil && !h.Held {
					break
				}
				if !bound.Sleep(a.stage.ctx, nil, 10*time.Millisecond) || time.Now().After(end) {
					a.left = append(a.left, leftPermits{i, uint16(n), h.Permits, err})
					break
				}
			}
		}
		_ = l.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	}
}
