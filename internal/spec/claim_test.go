package spec

import (
	"testing"

	"github.com/distlock/locker/internal/explore"
)

// TestClaims goes through all states of two claims, and through many of three.
func TestClaims(t *testing.T) {
	for ids, most := range map[uint8]int{2: 1_000_000, 3: 50_000} {
		m := ClaimModel(ids, Mistakes{})
		m.States = most
		r := m.Explore()
		if r.Broken != "" || ids == 2 && !r.Complete {
			t.Fatal(r)
		}
		if ids == 2 {
			wantOnPage(t, "simulation.md", "two claims: all %s states", r.States)
		} else {
			wantOnPage(t, "simulation.md", "Three claims: the first %s", most)
		}
		t.Logf("%d claims: %d states, %d steps deep, complete %t", ids, r.States, r.Depth, r.Complete)
	}
}

// TestClaimsWithShortTTLs: a renewal of a lock whose TTL is short leaves it as short as it was, and it may be kept.
func TestClaimsWithShortTTLs(t *testing.T) {
	m := ClaimModel(2, Mistakes{KeptLengthened: true})
	m.Promises = m.Promises[:4] // those about holders
	r := m.Explore()
	if r.Broken != "" || !r.Complete {
		t.Fatal(r)
	}
	wantOnPage(t, "simulation.md", "without the last promise, has %s states, which are all explored", r.States)
	t.Logf("%d states, %d steps deep", r.States, r.Depth)
}

// TestClaimsAreKept wants the model to keep claims, to take them again, and to give them up.
func TestClaimsAreKept(t *testing.T) {
	for name, reached := range map[string]func(Life) bool{
		"a claim is kept": func(l Life) bool { return l.Claims[0].State == Kept },
		"it is taken":     func(l Life) bool { return l.Claims[0].State == Held && l.Claims[0].Handed && l.Tokens == 2 },
		"another process gets the key next": func(l Life) bool {
			return l.Claims[1].State == Held && l.Claims[0].State == Released && l.Tokens > block
		},
		"both processes keep a claim": func(l Life) bool { return l.Claims[0].State == Kept && l.Claims[1].State == Kept },
	} {
		m := ClaimModel(2, Mistakes{})
		m.Promises = []explore.Promise[Life]{{Name: name, Kept: func(l Life) bool { return !reached(l) }}}
		if r := m.Explore(); r.Broken == "" {
			t.Errorf("%s: never, in %d states", name, r.States)
		}
	}
}

// TestClaimMistakes wants each planted mistake to break a promise.
func TestClaimMistakes(t *testing.T) {
	for name, m := range map[string]Mistakes{
		"the store does not compare the id of a release":       {ReleasesAny: true},
		"the store does not compare the id of a renewal":       {RenewsAny: true},
		"a renewal makes a lock that has gone":                 {RenewCreates: true},
		"a key that is held is granted":                        {GrantsAny: true},
		"a lease counts from the answer":                       {CountsFromReply: true},
		"a late grant counts":                                  {AcceptsLate: true},
		"a lease does not end by the clock":                    {IgnoresClock: true},
		"a token that the store has not given":                 {OwnTokens: true},
		"a hand-over keeps the token":                          {RepeatsToken: true},
		"a hand-over takes a token that is not reserved":       {ReservesOne: true},
		"an id is used again after its clean-up was sent":      {ReusesID: true},
		"a renewal revives a claim that was released":          {RevivesReleased: true},
		"a lease that is left to its TTL is held on by itself": {LetsHeldExpire: true},
		"a kept claim is granted after its end":                {KeptIgnoresClock: true},
		"a lease on a kept claim counts from its Lock":         {KeptCountsAnew: true},
		"a kept claim is granted with the same token":          {KeptRepeatsToken: true},
		"a kept claim is granted without a reserved token":     {KeptTakesTokens: true},
		"a kept claim is granted after its release was sent":   {KeptWhileReleased: true},
		"a claim that a renewal has lengthened is kept":        {KeptLengthened: true},
	} {
		t.Run(name, func(t *testing.T) {
			model := ClaimModel(2, m)
			model.States = 300_000
			r := model.Explore()
			if r.Broken == "" {
				t.Fatalf("%d states, and no promise is broken", r.States)
			}
			t.Logf("%d states\n%v", r.States, r)
		})
	}
}
