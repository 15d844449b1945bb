package conformance_test

import (
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
)

// brokenClaims claim what they cannot do.
var brokenClaims = map[string]brokenStrategy{
	"claims to be a quorum":          {claiming(fakeCounting, func(c *conformance.Capabilities) { c.Quorum = true }), []string{"GrantHasAMajority"}},
	"takes one server for a quorum":  {onServers(1, 1), []string{"GrantHasAMajority"}},
	"takes two servers for a quorum": {onServers(2, 2), []string{"GrantHasAMajority"}},
	"grants on a minority":           {onServers(2, 5), []string{"GrantHasAMajority"}},
	"sees no losses, and nobody can show it": {claiming(signalling(func(d *signalled) {
		d.watches = func(driver.Claim) bool { return false }
	}), func(c *conformance.Capabilities) { c.Break = false }), []string{"BreakIsDetected"}},
}
