package redisconformance

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/distlock/locker/conformance"
)

// everythingEnv, set to "all", makes RunOn run every case.
const everythingEnv = "LOCKER_CONFORMANCE"

// onTopologies are the cases of the suite that a topology other than one server
// is most likely to break: they ask several nodes, wait, count or look at what is
// left. With [Strategy.Cases] they are what RunOn runs unless told otherwise.
var onTopologies = []string{
	"exclusion/AcquireRelease", "exclusion/NeverTwoInside", "exclusion/Linearizable",
	"reentry/LeaseContextReenters", "owners/SharedOwnerAcrossLockers",
	"lease/RenewExtends", "lease/BreakIsNoticed",
	"waiting/BlocksUntilUnlock", "waiting/CancelIsPrompt", "waiting/FIFOAcrossLockers", "waiting/CancelledWaiterPassesOn",
	"wake-ups/NoMissedWakeup", "wake-ups/WakesOneAfterAnother", "wake-ups/LostNotification",
	"fencing/TokensIncreaseUnderContention", "fencing/TokenAfterDataLoss",
	"failure/AcquireReplyLost", "failure/RenewReplyLost", "failure/ScriptsForgotten", "outage/LockRidesOutAnOutage",
	"keys/HostileKeys", "keys/HostileKeysWait", "keys/ForeignThingsConflict",
	"hygiene/KeysEndWithLocks", "hygiene/CancelledWaiterLeavesNothing",
	"processes/ProcessesExclude",
	topologyGroup + "/.*", failoverGroup + "/(OrderlyFailover|MasterDies|LockDiesWithMaster)", slotsGroup + "/.*",
}

// RunOn runs the suite, and [Strategy.Cases], for a strategy on its Topology: a
// selection that takes well under a minute, or with the environment variable
// LOCKER_CONFORMANCE=all everything. The suite as a whole has been run on one server
// then; see [Strategy.Harness].
func RunOn(t *testing.T, s Strategy) {
	t.Helper()
	if testing.Short() {
		t.Skip("several servers take their time, and -short is given")
	}
	opts := []conformance.Option{conformance.WithCases(s.Cases()...)}
	if s.Topology == Cluster {
		opts = append(opts, conformance.WithSkip("LocalStateIsBounded",
			"clients open connections to each node as they happen to need them, whose buffers outweigh what is measured"))
	}
	if os.Getenv(everythingEnv) != "all" {
		t.Parallel() // there is no case among them that counts goroutines
		checkSelection(t)
		opts = append(opts, conformance.WithOnly("^("+strings.Join(onTopologies, "|")+")$"))
	}
	conformance.Run(t, s.Harness, opts...)
}

// checkSelection finds names that select nothing.
func checkSelection(t *testing.T) {
	t.Helper()
	names := append(conformance.Cases(), Strategy{Topology: Cluster}.Cases()...)
	for _, pattern := range onTopologies {
		found := false
		for _, c := range names {
			ok, err := regexp.MatchString("^"+pattern+"$", c.Group+"/"+c.Name)
			found = found || ok && err == nil
		}
		if !found {
			t.Errorf("no such case: %s", pattern)
		}
	}
}
