package conformance

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// raceCases look for commands that are two steps in the store: a look, and then a change
// that minds no more what was seen. Each tries often, at random distances. A try finds a
// command in two steps that take a round trip each with a chance of a tenth at least, so
// that raceTries miss it less than once in a million runs. Cases of the group wire stop
// between the steps, and need one try.
var raceCases = group("commands", []Case{
	{Name: "GrantIsAtomic", Rules: []string{"R1"}, Needs: Capabilities{Drivers: true}, Test: testGrantIsAtomic,
		Contract: "of Acquires that reach the store together at most one is granted, and that one holds the key"},
	{Name: "ReleaseIsAtomic", Rules: []string{"R2", "R19"}, Needs: Capabilities{Drivers: true}, Fault: true, Test: testReleaseIsAtomic,
		Contract: "a Release that arrives twice, with the next owner's Acquire between, does not free the next owner's key"},
	{Name: "RenewIsAtomic", Rules: []string{"R2", "R13"}, Needs: Capabilities{Drivers: true}, Test: testRenewIsAtomic,
		Contract: "a Renew beside the Release of its claim neither takes the key from the next owner nor brings the claim back"},
})

const raceTries = 60

// race is one try: it makes a claim, runs the commands beside one another, each at a random
// moment, while b tries to get the key, and returns b's claim.
func (t *T) race(a, b *commander, key string, trip time.Duration, commands ...func(c driver.Claim)) driver.Claim {
	t.Helper()
	c := a.grant(key, time.Minute)
	end := t.Begin(len(commands), func(i int) {
		wait := time.Duration(t.IntN(int(2*trip))) * time.Duration(min(i, 1)) // the first at once
		for start := time.Now(); time.Since(start) < wait; {                  // less than a timer can do
			time.Sleep(wait / 8) // a random moment on the way of the others is the subject
		}
		commands[i](c)
	})
	next := b.claim(key, time.Minute)
	for start := pace.Now(); ; {
		held, answer := b.try(next)
		if answer.Granted {
			end()
			return held
		}
		if t.caps().Quorum {
			next = b.claim(key, time.Minute)
		}
		if start.Took() > t.Timing().PollWithin {
			end()
			t.Fatalf("%q was released, and another owner is refused for %v: the claim is back", key, t.Timing().PollWithin)
		}
	}
}

// trip is how long a command takes.
func (t *T) trip(d *commander) time.Duration {
	t.Helper()
	c := d.grant(t.Key("trip"), time.Minute)
	var times []time.Duration
	for range 9 {
		start := time.Now()
		d.keeps(c, "a renewal")
		times = append(times, time.Since(start))
	}
	t.NoError(d.Release(t.Context(), c), "Release")
	return suite.Median(times)
}

func testReleaseIsAtomic(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	trip := t.trip(a)
	release := func(c driver.Claim) {
		if err := a.Release(t.Context(), c); err != nil && !errors.Is(err, locker.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	}
	for try := range raceTries {
		next := t.race(a, b, key, trip, release, release, release)
		if err := b.renew(next); err != nil {
			t.Fatalf("in try %d of %d a Release that arrived twice freed the next owner's key: does it look who holds the key, and delete it in a second step? (the next owner's Renew: %v)", try+1, raceTries, err)
		}
		t.NoError(b.Release(t.Context(), next), "Release by the next owner")
	}
}

func testRenewIsAtomic(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	trip := t.trip(a)
	release := func(c driver.Claim) { t.NoError(a.Release(t.Context(), c), "Release") }
	renew := func(c driver.Claim) {
		if err := a.renew(c); err != nil && !errors.Is(err, locker.ErrLost) {
			t.Errorf("Renew beside a Release: %v", err)
		}
	}
	for try := range raceTries {
		next := t.race(a, b, key, trip, renew, release, renew)
		if err := b.renew(next); err != nil {
			t.Fatalf("in try %d of %d a Renew beside a Release took the next owner's key: does it look who holds the key, and write it in a second step? (the next owner's Renew: %v)", try+1, raceTries, err)
		}
		t.NoError(b.Release(t.Context(), next), "Release by the next owner")
	}
}

func testGrantIsAtomic(t *T) {
	ds := []*commander{t.driver(), t.driver(), t.driver(), t.driver()}
	for try := range raceTries / 3 {
		key := t.Key(fmt.Sprint(try))
		claims, granted := make([]driver.Claim, len(ds)), make([]bool, len(ds))
		var winners atomic.Int32
		t.Together(len(ds), func(i int) {
			c, answer := ds[i].try(ds[i].claim(key, time.Minute))
			if claims[i], granted[i] = c, answer.Granted; answer.Granted {
				winners.Add(1)
			}
		})
		if n := winners.Load(); n > 1 || n < 1 && !t.caps().Quorum {
			t.Fatalf("in try %d of %d, of %d Acquires of a free key %d were granted", try+1, raceTries/3, len(ds), n)
		}
		for i, d := range ds {
			if granted[i] {
				d.keeps(claims[i], "Acquires beside its own")
				t.NoError(d.Release(t.Context(), claims[i]), "Release")
			}
		}
	}
}
