package conformance_test

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/test/soak"
)

// Sound strategies: one that has to do with all the faults there are for a store of
// others, and one on a store that loses commands and replies.
const (
	sound        = "sound"
	soundFaulted = "sound, in trouble"
	soundLosing  = "sound, replies lost"
)

// soaked are the broken strategies as the soak knows them, and sound ones.
func soaked() []soak.Strategy {
	var all []soak.Strategy
	add := func(name string, f fake) {
		all = append(all, soak.Strategy{Name: name, On: []soak.Topology{soak.Single}, New: func(p soak.Process) (locker.Locker, error) {
			return f.lockerOn(newRESPRemote(p.Clients[0]), p.Options)
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		add(name, broken[name].fake)
	}
	add(sound, fakeCounting)
	add(soundFaulted, fakeCounting)
	add(soundLosing, fakeCounting)
	return all
}

// loseNowAndThen loses commands and replies until ctx is done.
func loseNowAndThen(ctx context.Context, in *conformance.Injector) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		_ = in.Heal() // not one on top of the other
		op := []conformance.Op{conformance.OpAcquire, conformance.OpRenew, conformance.OpRelease}[n%3]
		lose := []func(conformance.Op) error{in.LoseReply, in.LoseCommand}[n/3%2]
		_ = lose(op)
	}
}

// hunt is how the nemesis finds a broken strategy, and as what.
type hunt struct {
	want   soak.Kind
	faults []string // default none
	ttls   []time.Duration
	slack  time.Duration // default 2 s
	length time.Duration // default 8 s
	keys   int           // default 16
	quick  bool          // in each test run
	loses  bool          // the store loses commands and replies, and the nemesis does not know
}

var (
	flushes = []string{"flush"}
	seconds = []time.Duration{3 * time.Second}
	// longer than a free lock may stay free
	long = []time.Duration{8 * time.Second}
)

// hunts are for the strategies whose fault shows as an overlap, in the order of tokens, as a
// stall, as a late loss or as a loss without a reason. The others are for the suite alone.
var hunts = map[string]hunt{
	"grants a held key now and then":      {want: soak.Overlap, quick: true},
	"never releases":                      {want: soak.Stall, ttls: long, slack: time.Second, length: 15 * time.Second},
	"releases whatever is there":          {want: soak.Overlap, faults: []string{"lose-reply"}, keys: 4, length: 15 * time.Second}, // a release is sent again, to the next holder
	"renews whatever is there":            {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"never expires":                       {want: soak.Stall, faults: []string{"kill"}, length: 15 * time.Second},
	"expires early":                       {want: soak.Overlap},
	"resurrects on renewal":               {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"shortens on renewal":                 {want: soak.Overlap},
	"shortens on re-entry":                {want: soak.Overlap, ttls: long, length: 20 * time.Second},
	"asks for another TTL":                {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"takes lost renewals for good":        {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"gives everybody one owner":           {want: soak.Overlap},
	"waits in TryLock":                    {want: soak.Stall, ttls: []time.Duration{200 * time.Millisecond}, slack: 200 * time.Millisecond},
	"does not mind the context":           {want: soak.Stall, ttls: seconds, length: 15 * time.Second}, // a wait ends seconds before such a lease
	"serves the last first":               {want: soak.Stall, length: 15 * time.Second},
	"hardly ever looks":                   {want: soak.Stall, length: 15 * time.Second},
	"repeats tokens":                      {want: soak.TokenOrder, quick: true},
	"counts tokens from 1":                {want: soak.TokenOrder, faults: flushes},
	"says that tokens are reserved":       {want: soak.TokenOrder},
	"claims fencing":                      {want: soak.TokenOrder},
	"refuses a repeated acquisition":      {want: soak.Stall, faults: []string{"duplicate"}, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes an outage for a refusal":       {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for a refusal":    {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for not applied":  {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for a release":    {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes lost replies for loss":         {want: soak.Unexpected, loses: true},
	"takes a lost reply for a lost lock":  {want: soak.Unexpected, loses: true},
	"answers renewals at once":            {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"hangs in Watch":                      {want: soak.Stall, slack: time.Second},
	"waits for wake-ups whatever happens": {want: soak.Stall, faults: []string{"lose-messages"}, ttls: seconds, slack: 200 * time.Millisecond, length: 30 * time.Second},
}

// TestNemesis sets the nemesis of package soak on the broken strategies: it finds each
// whose fault shows in what it looks at, and nothing wrong with a sound one.
func TestNemesis(t *testing.T) {
	t.Parallel()
	huntsAreOfStrategies(t)
	all := os.Getenv("LOCKER_CONFORMANCE") == "all"
	for i, s := range soaked() {
		h, ok := hunts[s.Name]
		switch s.Name {
		case sound:
			h, ok = hunt{quick: true}, true
		case soundFaulted:
			h, ok = hunt{length: 30 * time.Second}, true
			for _, f := range soak.Faults() {
				h.faults = append(h.faults, f.Name)
			}
		case soundLosing:
			h, ok = hunt{loses: true, ttls: long, slack: time.Second, length: 15 * time.Second}, true
		}
		if !ok || testing.Short() || !h.quick && !all {
			continue
		}
		t.Run(strings.ReplaceAll(s.Name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			f := fakeCounting
			if b, ok := broken[s.Name]; ok {
				f = b.fake
			}
			harness := newFakeHarness(f)
			if h.loses {
				go loseNowAndThen(t.Context(), harness.Injector)
			}
			cfg := soak.Config{
				Strategies: soaked()[i : i+1],
				Server:     serveRESP(t, harness),
				Duration:   cmp.Or(h.length, 8*time.Second),
				Seed:       1,
				Faults:     append([]string{}, h.faults...),
				Storm:      4 * time.Second,
				Calm:       4 * time.Second,
				TTLs:       h.ttls,
				Keys:       cmp.Or(h.keys, 16),
				Callers:    16,
				Slack:      h.slack,
				Dir:        t.TempDir(),
			}
			if !all { // beside other tests, whose times it is not to spoil
				cfg.Duration, cfg.Processes, cfg.Callers, cfg.Slack = 3*time.Second, 2, 4, 5*time.Second
			}
			report, err := soak.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			found := report.Found
			if h.want != "" && found[h.want] == 0 || h.want == "" && len(found) > 0 {
				t.Errorf("want %s: %v", cmp.Or(string(h.want), "nothing"), report)
			}
			t.Logf("%d operations, found %v", report.Operations(), found)
		})
	}
}

func huntsAreOfStrategies(t *testing.T) {
	t.Helper()
	for name := range hunts {
		if _, ok := broken[name]; !ok {
			t.Errorf("%q: there is no such strategy", name)
		}
	}
}
