package conformance

import (
	"time"

	"github.com/distlock/locker/driver"
)

func testBigRequestIsServed(t *T) {
	const limit = 4
	a, b := t.drivers()
	for name, ask := range map[string]func(c driver.Claim, waited time.Duration) (driver.Claim, driver.Answer){
		"3 of 4": func(c driver.Claim, waited time.Duration) (driver.Claim, driver.Answer) {
			return a.ask(c, 3, limit, waited)
		},
		"a lock": func(c driver.Claim, waited time.Duration) (driver.Claim, driver.Answer) {
			return a.ask(c, 0, 0, waited)
		},
	} {
		key := t.Key(name)
		first, second := b.takes(key, time.Minute, 1, limit), b.takes(key, time.Minute, 1, limit)
		waiting := time.Now().Add(-10 * time.Second) // for so long it has waited
		big := a.claim(key, time.Minute)
		asks := func() (driver.Claim, driver.Answer) { return ask(big, time.Since(waiting)) }
		if _, answer := asks(); answer.Granted {
			t.Fatalf("%s are granted beside 2 that are out", name)
		}
		bids := func() { asks() }
		b.keptFree(first, 2, limit, 100*time.Millisecond, bids, "to one that came after one that asks for "+name)
		// The one that asks falls silent.
		var later driver.Claim
		t.Eventually(driver.BidTime+t.Timing().PollWithin, "one that came later is granted what nobody asks for any more", func() bool {
			c, answer := b.ask(b.claim(key, time.Minute), 2, limit, -1)
			later = c
			return answer.Granted
		})
		b.keptFree(later, 2, limit, 100*time.Millisecond, bids, "to one that came after one that asks for "+name+" again")
		b.gives(second)
		c, answer := asks()
		if !answer.Granted {
			t.Fatalf("%s are refused to the one that has waited longest, and all are free", name)
		}
		a.gives(c)
	}
}

// keptFree gives c back after bids, by which another claim is kept free what c has, and checks that later claims are
// refused n permits of limit for as long as that may last without a further bid.
func (d *commander) keptFree(c driver.Claim, n, limit int, waited time.Duration, bids func(), why string) {
	d.t.Helper()
	for granted := true; granted; {
		granted = false
		bidden := time.Now()
		bids()
		d.gives(c)
		for tries := 0; tries < 3 && !granted; tries++ {
			next, answer := d.ask(d.claim(c.Key, time.Minute), n, limit, waited)
			if answer.Granted && time.Since(bidden) < driver.BidTime {
				d.t.Fatalf("%d permits of %d are granted %s", n, limit, why)
			}
			c, granted = next, answer.Granted // the one that asks was silent for too long: once more
		}
	}
}

func testLockComesBehindABid(t *T) {
	const limit = 4
	a, b := t.drivers()
	key := t.Key("k")
	waiting := time.Now().Add(-10 * time.Second) // for so long it has waited
	asks := func() (driver.Claim, driver.Answer) {
		return a.ask(a.claim(key, time.Minute), limit, limit, time.Since(waiting))
	}
	first := b.takes(key, time.Minute, 1, limit)
	asked := time.Now()
	if _, answer := asks(); answer.Granted {
		t.Fatalf("%d permits of %d are granted beside one that is out", limit, limit)
	}
	b.gives(first)
	for _, waited := range []time.Duration{-1, 100 * time.Millisecond} { // the first does not wait
		lock, answer := b.ask(b.claim(key, time.Minute), 0, 0, waited)
		switch {
		case answer.Granted && time.Since(asked) < driver.BidTime:
			t.Fatalf("a lock is granted to one that came after one that asks for %d permits", limit)
		case answer.Granted: // the one that asks was silent for too long
			b.gives(lock)
		}
	}
	c, answer := asks()
	if !answer.Granted {
		t.Fatalf("%d permits are refused to the one that has waited longest, and all are free", limit)
	}
	a.gives(c)
}

func testNothingIsKeptForNobody(t *T) {
	const limit = 4
	a, b := t.drivers()
	key := t.Key("k")
	first, second := b.takes(key, time.Minute, 1, limit), b.takes(key, time.Minute, 1, limit)
	asks := func() driver.Claim {
		c, answer := a.ask(a.claim(key, time.Minute), limit, limit, 10*time.Second)
		if answer.Granted {
			t.Fatalf("%d permits of %d are granted beside one that is out", limit, limit)
		}
		if !answer.Bids {
			t.Fatalf("a refusal of %d permits does not say that they are kept free: Answer.Bids", limit)
		}
		return c
	}
	var now driver.Claim
	const why = "while one that came before goes on asking"
	b.keptFree(second, 1, limit, -1, func() {
		before := asks()
		now = asks()
		a.lost(before, "a claim that was refused")
	}, why)
	a.lost(now, "a claim that was refused")
	b.gives(b.takes(key, time.Minute, limit-1, limit))
	b.keptFree(first, 1, limit, -1, func() { now = asks() }, why)
	a.lost(now, "a claim that was refused")
	b.free(b.grant(key, time.Minute), a) // as a lock
}

// bids asks for all of limit permits by a claim that has waited since waiting, and checks that the driver refuses it and keeps
// them free for it from then on.
func (d *commander) bids(key string, ttl time.Duration, limit int, waiting time.Time) driver.Claim {
	d.t.Helper()
	c, answer := d.ask(d.claim(key, ttl), limit, limit, time.Since(waiting))
	if answer.Granted || !answer.Bids {
		d.t.Fatalf("Acquire of %d permits of %d beside one that is out: granted %t, bids %t; want a refusal that bids", limit, limit, answer.Granted, answer.Bids)
	}
	return c
}

// endsLate sends the Release of c, which was refused, twice: by now it is kept nothing.
func (d *commander) endsLate(c driver.Claim) {
	d.t.Helper()
	for range 2 {
		d.lost(c, "a claim that was refused")
	}
}

func testLateEndOfABid(t *T) {
	const limit = 4
	a, b := t.drivers()
	key := t.Key("k")
	waiting := time.Now().Add(-10 * time.Second) // for so long it has waited
	holder := b.takes(key, time.Minute, 1, limit)
	first := a.bids(key, time.Minute, limit, waiting)
	b.gives(holder)
	// Another caller of the same Locker gets what was kept free, before the end of the bid arrives.
	next, answer := a.ask(a.claim(key, time.Minute), limit, limit, time.Since(waiting))
	if !answer.Granted {
		t.Fatalf("%d permits are refused to the one that has waited longest, and all are free", limit)
	}
	a.endsLate(first)
	b.wantOut(key, limit, "after the late end of a bid")
	a.keeps(next, "the late end of a bid")
	a.gives(next)
	a.endsLate(first)
	b.wantOut(key, 0, "in the end")
	a.free(a.grant(key, time.Minute), b) // as a lock
}

func testLateEndSparesOthers(t *T) {
	const limit = 4
	a, b := t.drivers()
	key := t.Key("k")
	waiting := time.Now().Add(-10 * time.Second) // for so long a has waited, and b for five seconds less
	holder := b.takes(key, time.Minute, 1, limit)
	first := a.bids(key, t.Timing().uneven(), limit, waiting)
	silent := time.Now()
	asks := func() (driver.Claim, driver.Answer) {
		return b.ask(b.claim(key, time.Minute), limit, limit, time.Since(waiting)-5*time.Second)
	}
	// The first one is silent until its bid is void, and its TTL is over.
	t.Eventually(max(driver.BidTime, first.TTL)+t.Timing().PollWithin, "one that came later bids", func() bool {
		_, answer := asks()
		return answer.Bids && time.Since(silent) > max(driver.BidTime, first.TTL)
	})
	asked := time.Now()
	asks()
	a.endsLate(first)
	switch c, answer := a.ask(a.claim(key, time.Minute), 1, limit, -1); {
	case answer.Granted && time.Since(asked) < driver.BidTime:
		t.Fatalf("after the late end of one bid, what is kept free by another is granted")
	case answer.Granted: // the other was silent for too long
		a.gives(c)
	}
	b.gives(holder)
	next, answer := asks()
	if !answer.Granted {
		t.Fatalf("%d permits are refused to the one that waits, and all are free", limit)
	}
	a.endsLate(first)
	b.wantOut(key, limit, "after the late end of another's bid")
	b.keeps(next, "the late end of another's bid")
	b.gives(next)
	b.wantOut(key, 0, "in the end")
}
