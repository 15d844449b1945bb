package spec

import "testing"

// TestClaims goes through all states of two claims, and through many of three.
func TestClaims(t *testing.T) {
	for ids, most := range map[uint8]int{2: 1_000_000, 3: 50_000} {
		m := ClaimModel(ids, Mistakes{})
		m.States = most
		r := m.Explore()
		if r.Broken != "" || ids == 2 && !r.Complete {
			t.Fatal(r)
		}
		t.Logf("%d claims: %d states, %d steps deep, complete %t", ids, r.States, r.Depth, r.Complete)
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
