//go:build unix

package main

import (
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/redisconformance"
	"github.com/distlock/locker/internal/test/peersuite"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
)

var libraries = []peersuite.Library{
	{Name: "setnx", Harness: narrowed(redisconformance.Strategy{Name: "setnx", New: setnx.New}.Harness, "", conformance.Capabilities{Name: "setnx", Fencing: true})},
	{
		Name: "redlock", Harness: narrowed(redisconformance.Quorum{Name: "redlock", New: redlock.New}.Harness, "",
			conformance.Capabilities{Name: "redlock", Fencing: true, Quorum: true}),
	},
	{
		Name: "redsync", Module: redsyncModule, Harness: onOne("redsync", "", redsyncDriver),
		Why: map[string]string{"AcquireTwice": ownKey + redsyncRecovers, "LinearizableUnderFaults": refusedFree},
	},
	{
		Name: "redsync (5 servers)", Module: redsyncModule, Harness: onFive("redsync", redsyncDriver),
		LeftOut: map[string]string{"GrantHasAMajority": "a mutex does not report on how many servers it holds the lock."},
		Why:     map[string]string{"AcquireTwice": ownKey + redsyncRecovers},
	},
	{Name: "redislock", Module: "github.com/bsm/redislock", Harness: onOne("redislock", "", redislockDriver)},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis", Harness: onOne("rueidislock", "rueidislock:0:", rueidislockDriver),
		LeftOut: peersuite.Each(map[string][]string{peersuite.RenewsItself: {
			"Expires", "TakenUntilDeadline", "RenewalsDoNotAddUp", "RenewAfterLoss", "IntervalsDisjoint", "ExpiredUnlockSparesSuccessor",
			"UnlockAfterLossIsLostOnce", "RenewReplyLost", "RenewTwice",
		}}),
		Why: map[string]string{
			"AcquireTwice": ownKey + " The key stays until its TTL is over.", "LinearizableUnderFaults": refusedFree,
			"StolenUnlockSparesThief": releaseReturns, "BrokenUnlockSparesSuccessor": releaseReturns,
		},
	},
}

const (
	redsyncModule = "github.com/go-redsync/redsync/v4"

	ownKey          = "the second command finds the key that the first one has set, and the library reports that another owner holds the lock. The case wants the lock."
	redsyncRecovers = " redsync deletes the key then, so its next try can get the lock."
	releaseReturns  = "the function that releases a lock returns nothing. A loss that the lock's context has not shown yet is not reported, and the case wants an error."
	refusedFree     = "a lock is refused although nobody holds it, as in `AcquireTwice`."
)
