package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/distlock/locker/driver"
)

// Renew passes the answers on as they come, unless something happens to the command. It
// gives none for a claim for which the driver gave none. A driver that does not answer once
// for each claim fails the case.
func (d injected) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	f := d.in.take(OpRenew)
	if f.isNone() {
		d.renew(ctx, claims, answer)
		return
	}
	var mu sync.Mutex
	answers := make(map[int]error)
	lost := f.run(ctx, func(ctx context.Context) error {
		d.renew(ctx, claims, func(i int, err error) {
			mu.Lock()
			defer mu.Unlock()
			answers[i] = err
		})
		return nil
	})
	mu.Lock()
	defer mu.Unlock() // what comes later comes too late
	for i := range claims {
		if lost != nil {
			answer(i, lost)
		} else if err, ok := answers[i]; ok {
			answer(i, err)
		}
	}
}

// renew calls the driver's Renew, and passes on the first answer for each claim that comes
// before Renew returns.
func (d injected) renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	var mu sync.Mutex
	times, over := make([]int, len(claims)), false
	d.inner.Renew(ctx, claims, func(i int, err error) {
		if i < 0 || i >= len(claims) {
			d.in.breach("Renew of %s, given %d claims, called answer for the index %d", d.Name(), len(claims), i)
			return
		}
		mu.Lock()
		times[i]++
		late, again := over, times[i] > 1
		mu.Unlock()
		switch {
		case late:
			d.in.breach("Renew of %s called answer(%d, ...) after it had returned; it has to answer before", d.Name(), i)
		case again:
			d.in.breach("Renew of %s called answer(%d, ...) twice; it has to answer exactly once for each claim", d.Name(), i)
		default:
			answer(i, err)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	for i, n := range times {
		if n == 0 {
			d.in.breach("Renew of %s returned without an answer for claim %d of %d (its context: %v)", d.Name(), i, len(claims), ctx.Err())
		}
	}
}

// breach notes what a driver did and may not do. The cases that end next report it.
func (in *Injector) breach(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if what := fmt.Sprintf(format, args...); len(in.broken) < 10 && !slices.Contains(in.broken, what) {
		in.broken = append(in.broken, what)
	}
}

// breaches are those so far: they stay, for whichever case looks.
func (in *Injector) breaches() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.broken)
}
