package redisconformance

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/distlock/locker/conformance"
)

// everythingEnv, set to "all", makes Run run every case.
const everythingEnv = "LOCKER_CONFORMANCE"

// onTopologies are the cases of the suite that a topology other than one server
// is most likely to break: they ask several nodes, wait, count or look at what is
// left. There Run runs these and [Strategy.Cases], unless LOCKER_CONFORMANCE asks for all.
var onTopologies = []string{
	"exclusion/NeverTwoInside", "exclusion/Linearizable", "reentry/LeaseContextReenters", "lease/BreakIsNoticed",
	"waiting/FIFOAcrossLockers", "waiting/CancelledWaiterPassesOn", "wake-ups/NoMissedWakeup", "wake-ups/LostNotification",
	"fencing/TokenAfterDataLoss", "failure/AcquireReplyLost", "failure/ScriptsForgotten", "outage/LockRidesOutAnOutage",
	"keys/HostileKeysWait", "hygiene/KeysEndWithLocks",
	topologyGroup + "/.*", failoverGroup + "/(OrderlyFailover|MasterDies|LockDiesWithMaster)", slotsGroup + "/.*",
}

// Run runs the suite, and [Strategy.Cases], for a strategy on its Topology: on one server all of
// it, elsewhere a selection that takes well under a minute. With the environment variable
// LOCKER_CONFORMANCE=all it runs all cases on each topology, those of
// [conformance.WithLockerCases] included.
func Run(t *testing.T, s Strategy) {
	t.Helper()
	opts := []conformance.Option{conformance.WithCases(s.Cases()...)}
	if s.Topology == Cluster {
		opts = append(opts, conformance.WithSkip("LocalStateIsBounded",
			"clients open connections to each node as they happen to need them, whose buffers outweigh what is measured"))
	}
	switch everything := os.Getenv(everythingEnv) == "all"; {
	case s.Topology != Single && testing.Short():
		t.Skip("several servers take their time, and -short is given")
	case everything:
		opts = append(opts, conformance.WithLockerCases())
	case s.Topology != Single:
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
