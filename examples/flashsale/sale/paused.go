package sale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/fence"
	"github.com/distlock/locker/fence/redisfence"
)

// pausing is a sale during which one shop is stopped by SIGSTOP, between its last look at the lease
// and its write, until the lease has ended and another shop has sold.
type pausing struct {
	At     int  // the units that are left then
	Fenced bool // all writes carry their fencing token, and a stale one is refused
}

// pausedTTL is short, so that nobody waits for long, and long enough for a busy machine.
const pausedTTL = 5 * time.Second

// withPause returns each method twice, without a check of tokens and with it. A careless one has
// no tokens, and with one shop nobody sells while it is stopped.
func withPause(methods []method, stock int) (twice []method) {
	for _, m := range methods {
		if m.careless == nil && m.oneShop == "" {
			for _, fenced := range []bool{false, true} {
				m.paused = &pausing{At: (stock + 1) / 2, Fenced: fenced}
				twice = append(twice, m)
			}
		}
	}
	return twice
}

// pausedShop is a shop that may be the one which is stopped.
type pausedShop struct {
	shop
	prefix string
}

// The stopped shop leaves in Redis for the parent: who it is and how many units there are, and
// the outcome of its write.
func pausedKey(prefix string) string { return prefix + "paused" }
func lateKey(prefix string) string   { return prefix + "late" }

func (p *pausing) shop(s shop, prefix string) (_ seller, err error) {
	s.shelf.beforeWrite = func(ctx context.Context, o *order, left int) (context.Context, error) {
		if left > p.At || ctx.Err() != nil {
			return ctx, context.Cause(ctx)
		}
		o.paused, err = s.shelf.rdb.SetNX(ctx, pausedKey(prefix), fmt.Sprint(os.Getpid(), " ", left), time.Hour).Result()
		if err != nil || !o.paused {
			return ctx, err
		}
		// That was the last look at ctx. Another one after the pause would find the loss; but there is
		// always a moment between the last look and the write.
		return context.WithoutCancel(ctx), stopMyself()
	}
	if p.Fenced {
		// The guard's key is of this sale, and an hour is long enough for it.
		s.shelf.guard, err = redisfence.New(s.shelf.rdb, redisfence.WithPrefix(prefix+"guard:"), redisfence.WithRetention(time.Hour))
	}
	return pausedShop{s, prefix}, err
}

// sell begins again if the late write was refused: nothing was written. If it was not, the unit
// is sold, although the lease was lost.
func (s pausedShop) sell(ctx context.Context, o *order) error {
	err := s.shop.sell(ctx, o)
	if !o.paused {
		return err
	}
	var failed *locker.DoError
	switch {
	case errors.Is(err, fence.ErrStale):
		if err := s.shelf.rdb.Set(ctx, lateKey(s.prefix), "refused", time.Hour).Err(); err != nil {
			return err
		}
		return s.shop.sell(ctx, o)
	case errors.As(err, &failed) && failed.Ran && errors.Is(err, locker.ErrLost):
		return s.shelf.rdb.Set(ctx, lateKey(s.prefix), "written", time.Hour).Err()
	}
	return err
}

// accompany lets the shop that is stopped go on when another one has sold. The func ends it, and
// returns when no shop is stopped.
func (p *pausing) accompany(ctx context.Context, rdb redis.UniversalClient, prefix string) (end func()) {
	if p == nil {
		return func() {}
	}
	ended, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		ctx := context.WithoutCancel(ctx)
		for tick := time.Tick(10 * time.Millisecond); ; <-tick {
			last := ended.Err() != nil
			var pid, left int
			if text, err := rdb.Get(ctx, pausedKey(prefix)).Result(); err == nil {
				_, _ = fmt.Sscan(text, &pid, &left)
			}
			units, err := rdb.Get(ctx, newShelf(rdb, prefix).key).Int()
			if sold := err == nil && units < left; pid != 0 && (sold || last) {
				_ = goOn(pid)
				return
			}
			if last {
				return
			}
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// judge says what became of the late write, and removes what the sale has left in Redis.
func (p *pausing) judge(ctx context.Context, rdb redis.UniversalClient, prefix string, r *result) {
	if p == nil {
		return
	}
	late, _ := rdb.Get(ctx, lateKey(prefix)).Result()
	rdb.Del(context.WithoutCancel(ctx), pausedKey(prefix), lateKey(prefix))
	name, want := "not fenced", "written"
	if p.Fenced {
		name, want = "fenced", "refused"
	}
	r.Strategy += ", " + name
	switch {
	case r.Failed > 0: // the verdict says so
	case late == "":
		r.OK, r.Verdict = false, "NO SHOP WAS PAUSED"
	case late != want:
		r.OK, r.Verdict = false, fmt.Sprintf("THE LATE WRITE WAS %s", late)
	case p.Fenced:
		r.Verdict += ", a late write was refused"
	case r.Oversold > 0:
		r.OK, r.Verdict = true, "oversold by a late write, as expected"
	default:
		r.OK, r.Verdict = true, "got away with a late write"
	}
}
