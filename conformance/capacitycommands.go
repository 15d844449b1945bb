package conformance

import (
	"time"

	"github.com/distlock/locker/driver"
)

// ask makes an attempt to get n permits of limit, or 0 and 0 for a lock. waited is for how long its caller
// has waited; negative if it does not wait.
func (d *commander) ask(c driver.Claim, n, limit int, waited time.Duration) (driver.Claim, driver.Answer) {
	d.t.Helper()
	c.Permits, c.Limit = n, limit
	ctx, cancel := d.t.Bounded(d.t.Context(), d.t.timing.Patience)
	defer cancel()
	a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: d.t.caps().Fencing, Waits: waited >= 0, Waited: max(waited, 0)})
	d.t.NoError(err, "Acquire")
	if a.Granted {
		c.Token = a.Token
	}
	if a.Granted && a.Claim != "" { // of an earlier Request that was refused
		c.ID, c.Owner = a.Claim, a.Claim
	}
	return c, a
}

// takes returns a new claim that was granted n permits of limit.
func (d *commander) takes(key string, ttl time.Duration, n, limit int) driver.Claim {
	d.t.Helper()
	c, a := d.ask(d.claim(key, ttl), n, limit, -1)
	if !a.Granted {
		d.t.Fatalf("Acquire of %d permits of %d is refused, with %d out", n, limit, d.out(key))
	}
	return c
}

// denied checks that a new claim is refused n permits of limit.
func (d *commander) denied(key string, n, limit int, why string) driver.Answer {
	d.t.Helper()
	_, a := d.ask(d.claim(key, time.Minute), n, limit, -1)
	if a.Granted {
		d.t.Fatalf("Acquire of %d permits of %d is granted %s", n, limit, why)
	}
	return a
}

func (d *commander) out(key string) int {
	d.t.Helper()
	keeper, ok := d.Driver.(driver.PermitKeeper)
	if !ok {
		d.t.Fatalf("Permits is claimed, and the driver is no driver.PermitKeeper")
	}
	out, _, err := keeper.Permits(d.t.Context(), key)
	d.t.NoError(err, "Permits")
	return out
}

func (d *commander) wantOut(key string, want int, when string) {
	d.t.Helper()
	if got := d.out(key); got != want {
		d.t.Fatalf("%s %d permits are out, want %d", when, got, want)
	}
}

func (d *commander) gives(c driver.Claim) {
	d.t.Helper()
	d.t.NoError(d.Release(d.t.Context(), c), "Release of permits")
}

func testPermitsSentTwice(t *T) {
	a, b := t.drivers()
	key := t.Key("k")
	other := b.takes(key, time.Minute, 1, 9)
	c := a.takes(key, time.Minute, 2, 9)
	for range 3 {
		again, answer := a.ask(c, 2, 9, -1)
		if !answer.Granted || again.Token != c.Token {
			t.Fatalf("repeated, Acquire answers %v and token %d, and had granted %d", answer.Granted, again.Token, c.Token)
		}
		b.wantOut(key, 3, "after an Acquire that was repeated")
	}
	a.gives(c)
	for range 3 {
		a.lost(c, "a claim that gave its permits back")
		b.wantOut(key, 1, "after a Release that was repeated")
	}
	b.keeps(other, "another claim's Release")
	b.gives(other)
	b.wantOut(key, 0, "after the last Release")
	a.free(a.grant(key, time.Minute), b) // as a lock
}

func testPermitsOfTheDead(t *T) {
	a, b := t.drivers()
	key, ttl := t.Key("k"), t.Timing().uneven()
	alive := b.takes(key, time.Minute, 1, 3)
	began := time.Now()
	dead := a.takes(key, ttl, 2, 3)
	for start := time.Now(); ; time.Sleep(time.Millisecond) { // the end of a TTL in the store is no event
		b.keeps(alive, "a grant")
		next, answer := b.ask(b.claim(key, time.Minute), 2, 3, time.Since(began)) // it bids
		switch {
		case answer.Granted && time.Since(began) < ttl-margin(ttl):
			t.Fatalf("its permits are granted to others %v after the grant, and its TTL is %v", time.Since(began), ttl)
		case answer.Granted:
			a.lost(dead, "a claim that has ended")
			b.wantOut(key, 3, "after commands of a claim that has ended")
			b.gives(next)
			b.gives(alive)
			b.wantOut(key, 0, "in the end")
			a.lockAfter(b, t.Key("l"), ttl)
			return
		case time.Since(start) > ttl+t.Timing().PollWithin:
			t.Fatalf("its permits are out %v after the grant, and its TTL is %v", time.Since(began), ttl)
		}
	}
}

// lockAfter checks that other, who waits for a lock, gets the key of a dead claim of permits.
func (d *commander) lockAfter(other *commander, key string, ttl time.Duration) {
	d.t.Helper()
	began := time.Now()
	d.takes(key, ttl, 1, 3)
	for {
		lock, answer := other.ask(other.claim(key, time.Minute), 0, 0, time.Since(began))
		switch {
		case answer.Granted:
			other.gives(lock)
			return
		case time.Since(began) > ttl+d.t.Timing().PollWithin:
			d.t.Fatalf("a lock is refused %v after a grant of permits, whose TTL is %v", time.Since(began), ttl)
		}
		time.Sleep(time.Millisecond) // the end of a TTL in the store is no event
	}
}

func testWeightsCount(t *T) {
	a, b := t.drivers()
	key := t.Key("k")
	three := a.takes(key, time.Minute, 3, 7)
	two := b.takes(key, time.Minute, 2, 7)
	if free := a.denied(key, 3, 7, "beside 5 that are out").Free; free > 2 {
		t.Errorf("a refusal says that %d are free, and there are 2", free)
	}
	last := a.takes(key, time.Minute, 2, 7)
	b.denied(key, 1, 7, "beside 7 that are out")
	b.gives(two)
	b.denied(key, 3, 7, "beside 5 that are out")
	a.gives(three)
	b.wantOut(key, 2, "after two claims of three")
	b.gives(b.takes(key, time.Minute, 5, 7))
	a.gives(last)
	b.gives(b.takes(key, time.Minute, driver.MaxPermits, driver.MaxPermits))
}

func testNewestLimitCounts(t *T) {
	a, b := t.drivers()
	key := t.Key("k")
	four := a.takes(key, time.Minute, 4, 5)
	if other := b.denied(key, 1, 3, "past its own limit").Limit; other != 5 {
		t.Errorf("the answer to a Request with another limit than the one before has the limit %d, want 5", other)
	}
	b.keeps(four, "a smaller limit")
	more, answer := a.ask(a.claim(key, time.Minute), 3, 7, -1)
	if !answer.Granted {
		t.Fatalf("3 permits of 7 are refused beside 4 that are out")
	}
	b.denied(key, 1, 7, "beside 7 that are out")
	a.gives(four)
	b.denied(key, 1, 3, "past its own limit")
	one := b.takes(key, time.Minute, 1, 4)
	if _, answer := b.ask(one, 1, 4, -1); answer.Limit != 0 {
		t.Errorf("the answer to a Request with the limit of the one before has the limit %d, want none", answer.Limit)
	}
	b.gives(one)
	a.gives(more)
}

func testPermitsAndLocksExclude(t *T) {
	a, b := t.drivers()
	key := t.Key("k")
	one, two := a.takes(key, time.Minute, 1, 9), b.takes(key, time.Minute, 1, 9)
	b.refused(key, "while permits are out")
	a.gives(one)
	a.refused(key, "while a permit is out")
	b.gives(two)
	lock := b.grant(key, time.Minute)
	a.denied(key, 1, 9, "while the key is locked")
	if _, answer := b.ask(b.claim(key, time.Minute), 1, 9, -1); answer.Granted {
		t.Fatalf("a permit is granted while the key is locked")
	}
	b.keeps(lock, "a Request for a permit")
	b.gives(lock)
	a.gives(a.takes(key, time.Minute, 9, 9))
}

func testPermitsHaveTokens(t *T) {
	a, b := t.drivers()
	key := t.Key("k")
	var last int64
	for range 5 {
		one, two := a.takes(key, time.Minute, 1, 2), b.takes(key, time.Minute, 1, 2)
		for _, c := range []driver.Claim{one, two} {
			if c.Token <= last || c.Token >= 1<<53 {
				t.Fatalf("a claim has token %d, and one before it that ended had %d", c.Token, last)
			}
		}
		if one.Token == two.Token {
			t.Fatalf("two claims have token %d", one.Token)
		}
		last = max(one.Token, two.Token)
		b.gives(two)
		a.gives(one)
	}
	lock := a.grant(key, time.Minute)
	if lock.Token <= last {
		t.Fatalf("a lock has token %d after permits with %d", lock.Token, last)
	}
	b.denied(key, 1, 2, "while the key is locked")
	a.gives(lock)
}
