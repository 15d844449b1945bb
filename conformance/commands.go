package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// commandCases ask the driver itself: no Locker looks again or repeats.
var commandCases = group("commands", []Case{
	{Name: "AcquireAgain", Rules: []string{"R9", "R19"}, Needs: Capabilities{Drivers: true}, Fault: true, Test: testAcquireAgain,
		Contract: "an Acquire by the claim that holds the key is granted with the same token, and the key is held for a whole TTL from then on"},
	{Name: "RemainingIsLeft", Rules: []string{"R15"}, Needs: Capabilities{Drivers: true}, Test: testRemainingIsLeft,
		Contract: "Remaining in a refusal is what is left of the holder's TTL, rounded up, or 0"},
	{Name: "OnlyTheHolder", Rules: []string{"R2", "R4"}, Needs: Capabilities{Drivers: true}, Test: testOnlyTheHolder,
		Contract: "Renew and Release by any id but the holder's are ErrLost and touch nothing, whatever owner they name"},
	{Name: "ExpiredIsLost", Rules: []string{"R2", "R11"}, Needs: Capabilities{Drivers: true}, Test: testExpiredIsLost,
		Contract: "Renew and Release of a claim whose TTL is over are ErrLost, whether the key was taken since or not, and create nothing"},
	{Name: "RenewAnswersOnce", Rules: []string{"R11", "R13"}, Needs: Capabilities{Drivers: true}, Test: testRenewAnswersOnce,
		Contract: "Renew of a full batch calls answer exactly once for each index before it returns: nil for claims that hold their keys, ErrLost for the others"},
	{Name: "TokensAreReserved", Rules: []string{"R14", "R21"}, Needs: Capabilities{Drivers: true, Fencing: true}, Test: testTokensAreReserved,
		Contract: "a grant reserves no more tokens than were asked for, and the next grant's token is greater than all of them"},
	{Name: "ShortAndLongTTLs", Rules: []string{"R9"}, Needs: Capabilities{Drivers: true}, Test: testShortAndLongTTLs,
		Contract: "a TTL of 100 ms lasts that long and ends, and one of 24 h is not cut short"},
	{Name: "LongIDsAndOwners", Rules: []string{"R4"}, Needs: Capabilities{Drivers: true}, Test: testLongIDsAndOwners,
		Contract: "ids that carry metadata, and owners of 1 KiB with any characters, are kept whole"},
	{Name: "HoldsAreAbsolute", Rules: []string{"R8", "R19"}, Needs: Capabilities{Drivers: true, StoredHolds: true}, Fault: true, Test: testHoldsAreAbsolute,
		Contract: "SetHolds sets the count, however often it arrives, and one Release takes all holds of its claim away"},
	{Name: "BreakNeedsTheID", Rules: []string{"R2"}, Needs: Capabilities{Drivers: true, Admin: true}, Test: testBreakNeedsTheID,
		Contract: "Break of a grant that is over is ErrLost and leaves the next holder alone"},
	{Name: "ClosedDriverReleases", Rules: []string{"R24"}, Needs: Capabilities{Drivers: true}, Test: testClosedDriverReleases,
		Contract: "Close ends within a second and frees no key; Release works after it"},
})

func testAcquireAgain(t *T) {
	a, b := t.drivers()
	ttl := t.Timing().uneven()
	for round := 0; ; round++ {
		key := t.Key(fmt.Sprint(round))
		began := time.Now()
		c, first := a.grantTo(a.claim(key, ttl))
		t.Sleep(ttl * 5 / 8)
		again := time.Now()
		_, second := a.try(c)
		late := time.Since(began) > ttl-margin(ttl) // it may have been a new grant
		if round < 20 && (late || t.caps().Quorum && !second.Granted) {
			continue
		}
		if !second.Granted {
			t.Fatalf("Acquire by the claim that holds the key is refused: an attempt that is sent twice would lock itself out")
		}
		// A node of a quorum that was late with the first answer may propose a greater one.
		if second.Token != first.Token && (!t.caps().Quorum || second.Token < first.Token) {
			t.Errorf("repeated by the claim that holds the key, Acquire answers token %d, and answered %d", second.Token, first.Token)
		}
		b.heldUntil(key, again.Add(ttl), ttl)
		return
	}
}

func testRemainingIsLeft(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	unit := max(t.Timing().Granularity, time.Millisecond)
	ttl := max(t.Timing().TTL, 6*unit)
	var late time.Duration
	if t.caps().Quorum {
		// A node may carry out a grant after a majority has answered. On this node the TTL ends later.
		late = t.Timing().Slack
		ttl = max(ttl, 4*late)
	}
	check := func(when string, from, to time.Time) { // the TTL runs from a moment between the two
		t.Helper()
		asked := time.Now()
		left := b.refused(key, "beside a holder").Remaining
		answered := time.Now()
		least, most := from.Add(ttl).Sub(answered)-margin(ttl), to.Add(ttl).Sub(asked)+2*unit+margin(ttl)+late
		if left != 0 && (left < least || left > most) {
			t.Errorf("%s Remaining is %v; want 0 (unknown), or what is left, rounded up: %v to %v", when, left, least, most)
		}
	}
	from := time.Now()
	c := a.grant(key, ttl)
	to := time.Now()
	check("after the grant", from, to)
	t.Sleep(ttl / 2)
	check("half a TTL later", from, to)
	from = time.Now()
	a.keeps(c, "half a TTL")
	check("after Renew", from, time.Now())
	a.free(c, b)
}

func testOnlyTheHolder(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	for range 11 { // ids that begin with one another: …:1, …:12, …:123
		a.claim(key, 0)
	}
	c := a.grant(key, time.Minute)
	for who, other := range map[string]func(*driver.Claim){
		"another id":                          func(o *driver.Claim) { o.ID = b.claim(key, 0).ID },
		"another id of the same owner":        func(o *driver.Claim) { o.ID, o.Owner = b.claim(key, 0).ID, c.Owner },
		"an id that begins with the holder's": func(o *driver.Claim) { o.ID += "3" },
		"an id that the holder's begins with": func(o *driver.Claim) { o.ID = o.ID[:len(o.ID)-1] },
		"the holder's id in capitals":         func(o *driver.Claim) { o.ID = strings.ToUpper(o.ID) },
	} {
		impostor := c
		other(&impostor)
		if impostor.ID == c.ID {
			continue // an id without letters
		}
		for _, d := range []*commander{b, a} {
			d.lost(impostor, who)
			a.keeps(c, "Renew and Release by "+who)
			b.refused(key, "after Renew and Release by "+who)
		}
		if _, counts := b.Driver.(driver.HoldCounter); !counts {
			if _, answer := b.try(impostor); answer.Granted {
				t.Fatalf("Acquire by %s is granted beside the holder", who)
			}
		}
	}
	elsewhere := c
	elsewhere.Key += "'"
	b.lost(elsewhere, "the holder of another key")
	a.free(c, b)
	a.lost(c, "a claim that was released")
	b.lost(b.claim(t.Key("never"), time.Minute), "a claim that was never granted")
	for _, free := range []string{key, elsewhere.Key, t.Key("never")} {
		a.free(a.grant(free, time.Minute), b)
	}
}

func testExpiredIsLost(t *T) {
	a, b := t.drivers()
	ttl, taken, alone := t.Timing().ShortTTL, t.Key("taken"), t.Key("alone")
	idle := a.grant(alone, ttl)
	began := time.Now()
	stale := a.grant(taken, ttl)
	var next driver.Claim
	t.Eventually(ttl+t.Timing().Granularity+t.Timing().PollWithin, "the end of a TTL", func() bool {
		c, answer := b.try(b.claim(taken, time.Minute))
		next = c
		return answer.Granted
	})
	a.lost(stale, "a claim that has expired, with another holder there")
	b.keeps(next, "Renew and Release of an expired claim")
	b.free(next, a)

	t.SleepPast(began.Add(ttl + t.Timing().Granularity + margin(ttl)))
	a.lost(idle, "a claim that has expired, with nobody there since")
	b.free(b.grant(alone, time.Minute), a)
}

func testRenewAnswersOnce(t *T) {
	const full = 256 // as many as the Locker sends at most
	a, b := t.drivers()
	shards := map[string][]driver.Claim{}
	held := map[string]bool{}
	for i := range full {
		key := t.Key(fmt.Sprint(i))
		c := a.claim(key, time.Minute)
		switch i % 5 { // no order that looks the same from its end
		case 0, 1:
			c = a.grant(key, time.Minute)
			held[key] = true
		case 2:
			b.grant(key, time.Minute)
		}
		shard := ""
		if s, ok := a.Driver.(driver.Sharder); ok {
			shard = s.Shard(key)
		}
		shards[shard] = append(shards[shard], c)
	}
	for _, claims := range shards {
		var mu sync.Mutex
		answers, over := map[int][]error{}, false
		a.Renew(t.Context(), claims, func(i int, err error) {
			mu.Lock()
			defer mu.Unlock()
			if over {
				t.Errorf("Renew called answer(%d) after it had returned", i)
			}
			answers[i] = append(answers[i], err)
		})
		mu.Lock()
		over = true
		mu.Unlock()
		t.Sleep(t.Timing().RenewEvery) // in which no answer may come
		mu.Lock()
		for i, c := range claims {
			switch got := answers[i]; {
			case len(got) != 1:
				t.Errorf("Renew of %d claims called answer(%d, ...) %d times; want once for each", len(claims), i, len(got))
			case held[c.Key] && got[0] != nil:
				t.Errorf("Renew of %d claims: answer(%d, %v) for a claim that holds its key", len(claims), i, got[0])
			case !held[c.Key] && !errors.Is(got[0], locker.ErrLost):
				t.Errorf("Renew of %d claims: answer(%d, ...) for a claim that does not hold its key: want ErrLost, got: %s", len(claims), i, got[0])
			}
			delete(answers, i)
		}
		for i := range answers {
			t.Errorf("Renew of %d claims called answer(%d, ...)", len(claims), i)
		}
		mu.Unlock()
	}
}

func testTokensAreReserved(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	var last int64
	for i, want := range []int{0, 16, 1, 1024, 16} {
		d := []*commander{a, b}[i%2]
		c := d.claim(key, time.Minute)
		req := driver.Request{Claim: c, Fencing: true, Tokens: want}
		answer, err := d.Acquire(t.Context(), req)
		for start := pace.Now(); err == nil && !answer.Granted && t.caps().Quorum && start.Took() < t.Timing().PollWithin; {
			req.Claim = d.claim(key, time.Minute)
			answer, err = d.Acquire(t.Context(), req)
		}
		t.NoError(err, "Acquire")
		if !answer.Granted || answer.Tokens < 0 || answer.Tokens > max(want, 1) {
			t.Fatalf("Acquire with Tokens %d: granted %t with Tokens %d; want at most what was asked for", want, answer.Granted, answer.Tokens)
		}
		if answer.Token <= last || answer.Token >= 1<<53 {
			t.Fatalf("the token is %d; want more than %d, the last one reserved before, and less than 2^53", answer.Token, last)
		}
		last = answer.Token + int64(max(answer.Tokens, 1)) - 1
		c = req.Claim
		c.Token = answer.Token
		if answer.Claim != "" {
			c.ID = answer.Claim
		}
		t.NoError(d.Release(t.Context(), c), "Release")
	}
}

func testShortAndLongTTLs(t *T) {
	a, b, short, long := t.driver(), t.driver(), t.Key("short"), t.Key("long")
	const day = 24 * time.Hour
	asked := time.Now()
	c := a.grant(long, day)
	began := time.Now()
	a.grant(short, locker.MinTTL)
	b.heldUntil(short, began.Add(locker.MinTTL), locker.MinTTL)
	left := b.refused(long, "within a TTL of 24 h").Remaining
	if most := time.Until(asked.Add(day)) + t.Timing().Slack + t.Timing().Granularity; left != 0 && (left < day-time.Hour || left > most) {
		t.Errorf("Remaining is %v of a TTL of 24 h that began %v ago", left, time.Since(asked))
	}
	a.keeps(c, "a moment of 24 h")
	b.refused(long, "after a renewal for 24 h")
	a.free(c, b)
}

func testLongIDsAndOwners(t *T) {
	a, b := t.drivers()
	metadata := driver.MetadataMark + "job=" + strings.Repeat("j", 900) + "&host=%F0%9F%94%92"
	for i, owner := range []string{"", "me", "{me}:1\n\x00", strings.Repeat("o", 1<<10), "\U0001F512 é"} {
		c := a.claim(t.Key(fmt.Sprint(i)), time.Minute)
		if c.ID += metadata; owner == "" {
			owner = c.ID
		}
		c.Owner = owner
		c, _ = a.grantTo(c)
		b.refused(c.Key, "beside a holder of a long name")
		if inspector, ok := a.Driver.(driver.Inspector); ok && t.caps().Admin {
			h, err := inspector.Inspect(t.Context(), c.Key)
			t.NoError(err, "Inspect")
			if !h.Held || h.Key != c.Key || h.Owner != owner && h.Owner != c.ID && h.Owner != "" {
				t.Errorf("Inspect of %.40q: held %t by %.40q; want the owner %.40q", h.Key, h.Held, h.Owner, owner)
			}
		}
		cut := c
		cut.ID = strings.TrimSuffix(c.ID, "%92") + "%93"
		b.lost(cut, "an id that differs in its last character")
		a.keeps(c, "a claim of a longer id was refused")
		a.free(c, b)
	}
}

func testHoldsAreAbsolute(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	counter, ok := a.Driver.(driver.HoldCounter)
	if !ok {
		t.Fatalf("StoredHolds is claimed, and the driver is no driver.HoldCounter")
	}
	c := a.grant(key, time.Minute)
	for _, n := range []int{2, 2, 3, 1, 1, 2} {
		t.NoError(counter.SetHolds(t.Context(), c, n), "SetHolds")
		b.refused(key, "with holds left")
		a.keeps(c, "SetHolds")
	}
	a.free(c, b)
	a.lost(c, "a claim whose holds were released")
}

func testBreakNeedsTheID(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	inspector, ok := b.Driver.(driver.Inspector)
	if !ok {
		t.Fatalf("Admin is claimed, and the driver is no driver.Inspector")
	}
	inspect := func(want bool) driver.Holder {
		t.Helper()
		h, err := inspector.Inspect(t.Context(), key)
		t.NoError(err, "Inspect")
		if h.Held != want || h.Key != key {
			t.Fatalf("Inspect of %q returned the key %q, held %t; want held %t", key, h.Key, h.Held, want)
		}
		return h
	}
	inspect(false)
	c := a.grant(key, time.Minute)
	first := inspect(true)
	t.NoError(a.Release(t.Context(), c), "Release")
	t.Is(inspector.Break(t.Context(), first), locker.ErrLost)
	c = a.grant(key, time.Minute)
	t.Is(inspector.Break(t.Context(), first), locker.ErrLost)
	a.keeps(c, "Break of an earlier grant")
	elsewhere := inspect(true)
	elsewhere.Key += "'"
	t.Is(inspector.Break(t.Context(), elsewhere), locker.ErrLost)
	a.keeps(c, "Break of another key")
	t.NoError(inspector.Break(t.Context(), inspect(true)), "Break")
	inspect(false)
	a.lost(c, "a claim that was broken")
	b.free(b.grant(key, time.Minute), a)
}

func testClosedDriverReleases(t *T) {
	a, b, key := t.driver(), t.driver(), t.Key("k")
	d, err := must[DriverMaker](t.h).NewDriver()
	t.NoError(err, "making a driver")
	closed := t.configure(d)
	c := closed.grant(key, time.Minute)
	t.Within(time.Second+t.Timing().Slack, "Close", func() { t.NoError(d.Close(), "Close") })
	b.refused(key, "after the holder's driver was closed")
	t.NoError(d.Release(t.Context(), c), "Release after Close")
	a.free(a.grant(key, time.Minute), b)
}
