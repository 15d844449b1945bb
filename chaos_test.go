package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// roll is a source of chance that goroutines share.
type roll struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *roll) n(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

func (r *roll) ms(n int) time.Duration { return time.Duration(1+r.n(n)) * time.Millisecond }

// trouble is a store that does one of everything now and then.
func (r *roll) trouble() step {
	return func(c *command) error {
		switch r.n(20) {
		case 0:
			return fail(errRefused)(c)
		case 1:
			return failAfter(errReset)(c)
		case 2:
			return loseReply(c)
		case 3:
			return hang(c)
		case 4:
			return delay(r.ms(700), obey)(c)
		case 5:
			return replyAfter(r.ms(700))(c)
		}
		return delay(r.ms(5), obey)(c)
	}
}

// inside knows who is in the section of each key.
type inside struct {
	mu     sync.Mutex
	leases map[string][]*Lease
	tokens map[string]int64
}

// enter wants nobody else there whose lease is not lost.
func (in *inside) enter(t *testing.T, l *Lease) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.Holds() == 0 {
		return // lost already
	}
	for _, other := range in.leases[l.Key()] {
		if other.claim.ID != l.claim.ID && other.Holds() > 0 {
			t.Errorf("%s and %s hold %q at once, want one of them", l.Owner(), other.Owner(), l.Key())
		}
	}
	if l.Token() < in.tokens[l.Key()] {
		t.Errorf("token %d of %q after %d, want it greater", l.Token(), l.Key(), in.tokens[l.Key()])
	}
	in.tokens[l.Key()] = l.Token()
	in.leases[l.Key()] = append(in.leases[l.Key()], l)
}

// user locks and unlocks until the end, patient or not, re-entering or not.
func user(t *testing.T, base context.Context, b *bench, in *inside, r *roll, end time.Duration) {
	t.Helper()
	for b.at() < end {
		key := fmt.Sprint("k", r.n(2))
		ctx, cancel := context.WithTimeout(base, r.ms(1500))
		lock := b.Lock
		if r.n(3) == 0 {
			lock = b.TryLock
		}
		l, err := lock(ctx, key, WithWait(r.ms(3000)))
		if err != nil {
			if l != nil || !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLost) {
				t.Errorf("Lock: %v, %v; want no lease, and contention, an outage or an owner's loss", l, err)
			}
			cancel()
			bound.Sleep(base, nil, r.ms(100))
			continue
		}
		in.enter(t, l)
		again, err := lock(l.Context(ctx), key)
		if err == nil {
			in.enter(t, again)
		}
		bound.Sleep(base, nil, r.ms(600))
		if r.n(6) == 0 {
			_ = l.LetExpire() // with the other lease the lock is released, or left to its TTL
		}
		for _, x := range []*Lease{again, l} {
			for x != nil && errors.Is(x.Unlock(ctx), ErrUnavailable) {
				bound.Sleep(base, nil, r.ms(500))
			}
		}
		cancel()
	}
}

// Whatever the store does, nobody shares a lock, tokens grow, every attempt and
// every grant is accounted for, and nothing is left in the end.
func TestChaos(t *testing.T) {
	for seed := range uint64(3) {
		for name, k := range map[string]kind{"plain": plain, "counting": counting, "notifying": notifying} {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := &roll{r: rand.New(rand.NewPCG(seed, 0))}
					b := newBench(t, k, WithTTL(time.Second))
					in := &inside{leases: make(map[string][]*Lease), tokens: make(map[string]int64)}
					for _, o := range []op{opAcquire, opRenew, opRelease, opSetHolds, opWatch} {
						b.store.from(o, r.trouble())
					}
					var users sync.WaitGroup
					for i := range 6 {
						ctx := t.Context()
						if i < 2 {
							ctx = ContextWithOwner(ctx, "ann")
						}
						users.Go(func() { user(t, ctx, b, in, r, 30*time.Second) })
					}
					users.Wait()
					b.until(b.at() + 20*time.Second)
					for _, key := range []string{"k0", "k1"} {
						if held := b.store.held(key); held != "" {
							t.Errorf("%s holds %s, want nobody: every lease was unlocked, or has expired", held, key)
						}
					}
					got := b.events()
					ends := len(got[EventReleased]) + len(got[EventReleaseFailed]) + len(got[EventLetExpire]) + len(got[EventLost])
					if n := len(got[EventAcquired]); n == 0 || ends < n {
						t.Errorf("%d Acquired and %d ends, want some, and an end for each", n, ends)
					}
					b.wantIdle("all leases are unlocked")
				})
			})
		}
	}
}
