package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// stepCases stop a command between what it sends first and what it sends next, at each
// place there may be, and let another owner take the key meanwhile. A command that looks
// and then changes, without minding what it saw, is found for certain.
var stepCases = group("wire", []Case{
	{Name: "AcquireInSteps", Rules: []string{"R1"}, Needs: Capabilities{Wired: true}, Test: testAcquireInSteps,
		Contract: "an Acquire that is held up on its way, wherever that is, is not granted beside the owner who came first"},
	{Name: "ReleaseInSteps", Rules: []string{"R2"}, Needs: Capabilities{Wired: true}, Test: testReleaseInSteps,
		Contract: "a Release that is held up on its way until the claim has expired, wherever that is, leaves the next owner's lock alone"},
	{Name: "RenewInSteps", Rules: []string{"R2", "R11"}, Needs: Capabilities{Wired: true}, Test: testRenewInSteps,
		Contract: "a Renew that is held up on its way until the claim has expired, wherever that is, leaves the next owner's lock alone"},
	{Name: "BreakInSteps", Rules: []string{"R2"}, Needs: Capabilities{Wired: true, Admin: true}, Test: testBreakInSteps,
		Contract: "a Break that is held up on its way until the grant is over, wherever that is, leaves the next owner's lock alone"},
})

// mostSteps is how many requests a command is taken to be at most.
const mostSteps = 6

// steps calls prepare for a command, sends the command, and stops it after each number of
// requests. takeOver is called while it is stopped, and check after it has come to its end.
func (t *T) steps(prepare func(d *commander, key string) (op func(ctx context.Context) error, ttl time.Duration),
	takeOver func(key string, d *commander, ttl time.Duration) driver.Claim, check func(key string, next driver.Claim, err error, at string)) {
	t.Helper()
	t.Together(mostSteps, func(n int) {
		key := t.Key(fmt.Sprint(n))
		p, d := t.wire()
		d.free(d.grant(t.Key(fmt.Sprint("warm-up ", n)), time.Minute), d) // a connection is there
		op, ttl := prepare(d, key)
		held, let := p.HoldAfter(n)
		defer let()
		ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
		defer cancel()
		var err error
		done := t.Go(func() { err = op(ctx) })
		select {
		case <-done: // it was no more than n requests
			return
		case <-held:
		}
		next := takeOver(key, d, ttl)
		select {
		case <-done:
			if err == nil {
				return // it had its answer: what was held is what a client sends after it, as HTTP/2 does
			}
		default:
		}
		let()
		t.Ends(done, t.Timing().Patience, "the end of a command that was held up")
		// Its client may have given it up, and what it sent still be on its way.
		t.Sleep(t.Timing().RenewEvery)
		check(key, next, err, fmt.Sprintf("held up after %d requests", n))
	})
}

// overtake takes the key by another driver when the claim there has expired.
func (t *T) overtake(other *commander) func(string, *commander, time.Duration) driver.Claim {
	return func(key string, _ *commander, ttl time.Duration) (next driver.Claim) {
		t.Eventually(ttl+t.Timing().Granularity+t.Timing().PollWithin, "the end of a TTL", func() bool {
			c, a := other.try(other.claim(key, time.Minute))
			next = c
			return a.Granted
		})
		return next
	}
}

func testAcquireInSteps(t *T) {
	other := t.driver()
	t.steps(func(d *commander, key string) (func(context.Context) error, time.Duration) {
		c := d.claim(key, time.Minute)
		return func(ctx context.Context) error {
			a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: t.caps().Fencing})
			if a.Granted {
				return errGranted
			}
			return err
		}, 0
	}, func(key string, _ *commander, _ time.Duration) driver.Claim {
		c, a := other.try(other.claim(key, time.Minute))
		if !a.Granted {
			c.ID = "" // it was granted already, and just does not know
		}
		return c
	}, func(key string, next driver.Claim, err error, at string) {
		if next.ID == "" {
			return
		}
		if errors.Is(err, errGranted) {
			t.Fatalf("an Acquire that was %s was granted a key that another owner had taken meanwhile", at)
		}
		other.keeps(next, "an Acquire that was "+at)
	})
}

func testReleaseInSteps(t *T) {
	other := t.driver()
	t.steps(func(d *commander, key string) (func(context.Context) error, time.Duration) {
		c := d.grant(key, t.Timing().ShortTTL)
		return func(ctx context.Context) error { return d.Release(ctx, c) }, c.TTL
	}, t.overtake(other), func(key string, next driver.Claim, _ error, at string) {
		if err := other.renew(next); err != nil {
			t.Fatalf("a Release that was %s until its claim had expired freed the next owner's key: it looks who holds the key, and deletes it in a second step (the next owner's Renew: %v)", at, err)
		}
	})
}

func testRenewInSteps(t *T) {
	other := t.driver()
	t.steps(func(d *commander, key string) (func(context.Context) error, time.Duration) {
		c := d.grant(key, t.Timing().ShortTTL)
		return func(ctx context.Context) (err error) {
			d.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
			return err
		}, c.TTL
	}, t.overtake(other), func(key string, next driver.Claim, err error, at string) {
		if err == nil {
			t.Errorf("a Renew that was %s until its claim had expired and another owner held the key says that it renewed", at)
		}
		if err := other.renew(next); err != nil {
			t.Fatalf("a Renew that was %s until its claim had expired took the next owner's key: it looks who holds the key, and writes it in a second step (the next owner's Renew: %v)", at, err)
		}
	})
}

func testBreakInSteps(t *T) {
	other := t.driver()
	var claims sync.Map // what is to be broken, by key
	t.steps(func(d *commander, key string) (func(context.Context) error, time.Duration) {
		claims.Store(key, other.grant(key, time.Minute))
		inspector, ok := d.Driver.(driver.Inspector)
		if !ok {
			t.Fatalf("Admin is claimed, and the driver is no driver.Inspector")
		}
		h, err := inspector.Inspect(t.Context(), key)
		t.NoError(err, "Inspect")
		return func(ctx context.Context) error { return inspector.Break(ctx, h) }, 0
	}, func(key string, _ *commander, _ time.Duration) driver.Claim {
		c, _ := claims.Load(key)
		if err := other.Release(t.Context(), c.(driver.Claim)); err != nil {
			t.Is(err, locker.ErrLost) // it was broken
		}
		return other.grant(key, time.Minute)
	}, func(_ string, next driver.Claim, _ error, at string) {
		if err := other.renew(next); err != nil {
			t.Fatalf("a Break that was %s freed a later owner's key (that owner's Renew: %v)", at, err)
		}
	})
}
