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
	"github.com/distlock/locker/internal/soak"
)

// Sound strategies: one that has to do with all the faults there are for a store of
// others, one on a store that loses, and one without tokens.
const (
	sound         = "sound"
	soundFaulted  = "sound, in trouble"
	soundLosing   = "sound, replies lost"
	soundUnfenced = "sound, without fencing"
)

// soaked are the broken strategies as the soak knows them, and sound ones.
func soaked() []soak.Strategy {
	var all []soak.Strategy
	add := func(name string, f fake) {
		caps := conformance.Capabilities{Fencing: true}
		if f.caps != nil {
			f.caps(&caps)
		}
		all = append(all, soak.Strategy{
			Name: name, Fair: caps.Fair, Notified: caps.Notified, StoredHolds: caps.StoredHolds, Unfenced: !caps.Fencing,
			New: func(p soak.Process) (locker.Locker, error) {
				return f.lockerOn(newRESPRemote(p.Clients[0]), p.Options)
			},
		})
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		add(name, broken[name].fake)
	}
	add(sound, fakeCounting)
	add(soundFaulted, fakeCounting)
	add(soundLosing, fakeCounting)
	add(soundUnfenced, claiming(options(locker.WithoutFencing()), func(c *conformance.Capabilities) { c.Fencing = false }))
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
	want    soak.Kind
	faults  []string // default none
	ttls    []time.Duration
	slack   time.Duration // default 2 s
	length  time.Duration // default 8 s
	storm   time.Duration // default 4 s, in turn with calms of 4 s
	keys    int           // default 16
	callers int           // default 16
	quick   bool          // in each test run
	// loses: the store loses commands and replies. The nemesis does not know, so that
	// it is right to wonder why the store is unavailable.
	loses bool
}

var (
	flushes = []string{"flush"}
	second  = []time.Duration{time.Second}
	seconds = []time.Duration{3 * time.Second}
	shorts  = []time.Duration{300 * time.Millisecond}
	// longer than a free lock may stay free
	long = []time.Duration{8 * time.Second}
)

// hunts are for those that break what the nemesis looks at.
var hunts = map[string]hunt{
	"grants a held key now and then":             {want: soak.Overlap, quick: true},
	"releases some time later":                   {want: soak.NoOrder, length: 15 * time.Second, keys: 64},
	"never releases":                             {want: soak.Stall, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a refusal for trouble":                {want: soak.Unavailable},
	"releases whatever is there":                 {want: soak.Overlap},
	"renews whatever is there":                   {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"never expires":                              {want: soak.Stall, faults: []string{"kill"}, length: 15 * time.Second},
	"expires early":                              {want: soak.Overlap},
	"resurrects on renewal":                      {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"shortens on renewal":                        {want: soak.Overlap},
	"shortens on re-entry":                       {want: soak.Overlap, ttls: long, length: 20 * time.Second},
	"renews nothing by itself":                   {want: soak.FalseLoss, ttls: shorts, length: 15 * time.Second, keys: 64},
	"knows no limits":                            {want: soak.Outlived, length: 15 * time.Second},
	"is slow to renew":                           {want: soak.FalseLoss, ttls: shorts, length: 15 * time.Second, keys: 64},
	"asks for another TTL":                       {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"hands out lost leases":                      {want: soak.FalseLoss},
	"takes lost renewals for good":               {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"takes lost replies for loss":                {want: soak.FalseLoss, loses: true, length: 15 * time.Second},
	"gives everybody one owner":                  {want: soak.Overlap},
	"forgets who holds":                          {want: soak.WrongAnswer},
	"counts holds up and down":                   {want: soak.FalseLoss, faults: []string{"duplicate", "lose-reply"}, length: 15 * time.Second},
	"frees the key with the first of two claims": {want: soak.Overlap},
	"gives up early":                             {want: soak.WrongAnswer},
	"waits in TryLock":                           {want: soak.Slow, ttls: []time.Duration{200 * time.Millisecond}, slack: 200 * time.Millisecond},
	"does not mind the context":                  {want: soak.Slow, length: 15 * time.Second},
	"serves in any order":                        {want: soak.Slow, length: 15 * time.Second},
	"looks every three seconds":                  {want: soak.Slow, length: 15 * time.Second},
	"repeats tokens":                             {want: soak.TokenOrder, quick: true},
	"counts tokens from 1":                       {want: soak.TokenOrder, faults: flushes},
	"gives each process a token":                 {want: soak.Overlap},
	"says that tokens are reserved":              {want: soak.TokenOrder},
	"claims fencing":                             {want: soak.TokenOrder},
	"refuses a repeated acquisition":             {want: soak.Stall, faults: []string{"duplicate"}, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes an outage for good":                   {want: soak.WrongAnswer, loses: true},
	"takes an outage for a refusal":              {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for a refusal":           {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for not applied":         {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for a release":           {want: soak.Stall, loses: true, ttls: long, slack: time.Second, length: 15 * time.Second},
	"takes a lost reply for a lost lock":         {want: soak.FalseLoss, loses: true, length: 15 * time.Second},
	"answers renewals at once":                   {want: soak.LateLoss, faults: flushes, length: 15 * time.Second},
	"leaves keys for ever":                       {want: soak.LeakedKey, length: 2 * time.Second},

	"cannot release after Close":          {want: soak.Unavailable},
	"closes the store":                    {want: soak.Overlap},
	"does not close":                      {want: soak.WrongAnswer},
	"fails to close twice":                {want: soak.WrongAnswer},
	"cuts keys at NUL":                    {want: soak.NoOrder, callers: 6, keys: 64, length: 30 * time.Second},
	"cuts long keys":                      {want: soak.NoOrder, callers: 6, keys: 64, length: 30 * time.Second},
	"drops prefixes":                      {want: soak.NoOrder, callers: 6, keys: 64, length: 30 * time.Second},
	"ignores case":                        {want: soak.NoOrder, callers: 6, keys: 64, length: 30 * time.Second},
	"trims keys":                          {want: soak.NoOrder, callers: 6, keys: 64, length: 30 * time.Second},
	"takes foreign locks":                 {want: soak.Overwritten, faults: []string{"foreign"}},
	"waits for foreign things":            {want: soak.WrongAnswer, faults: []string{"foreign"}, ttls: seconds, keys: 8, slack: 200 * time.Millisecond, storm: 12 * time.Second, length: 40 * time.Second},
	"takes any driver option":             {want: soak.WrongAnswer},
	"lets bad calls pass":                 {want: soak.WrongAnswer},
	"tells no observer":                   {want: soak.WrongAnswer},
	"keeps the store's words to itself":   {want: soak.WrongAnswer, faults: []string{"full"}, length: 15 * time.Second},
	"rides out what needs a person":       {want: soak.Slow, faults: []string{"full"}, storm: 12 * time.Second, length: 40 * time.Second, keys: 64, slack: 200 * time.Millisecond},
	"needs its scripts":                   {want: soak.Unavailable, faults: []string{"script-flush"}},
	"counts TTLs in seconds":              {want: soak.Overlong},
	"leaves goroutines":                   {want: soak.LeakedGoroutine, length: 2 * time.Second},
	"leaves goroutines after Close":       {want: soak.LeakedGoroutine, length: 2 * time.Second},
	"remembers keys":                      {want: soak.LeakedMemory, length: 2 * time.Second},
	"leaves a key for each waiter":        {want: soak.LeakedKey},
	"hangs in Watch":                      {want: soak.Slow, slack: time.Second},
	"is not notified again":               {want: soak.Stall, faults: []string{"signal-kill"}, ttls: second, keys: 64, storm: time.Second, length: 45 * time.Second},
	"loses every wake-up":                 {want: soak.Stall, ttls: second, keys: 64, length: 45 * time.Second},
	"waits for wake-ups whatever happens": {want: soak.Slow, faults: []string{"lose-messages"}, ttls: seconds, slack: 200 * time.Millisecond, length: 15 * time.Second},
	"claims stored holds":                 {want: soak.WrongAnswer, length: 15 * time.Second},
	"hides stored holds":                  {want: soak.Overlap},
	"claims to be fair":                   {want: soak.Unfair, keys: 4},
	"hides fencing":                       {want: soak.TokenOrder},
	"has tokens beyond 2^53":              {want: soak.TokenOrder},
	"issues tokens unasked":               {want: soak.TokenOrder},
}

// Nobody can find this one: to poll every 10 to 100 ms is as good as being notified.
const unseen = "claims to be notified"

// TestNemesis sets the nemesis of package soak on the broken strategies: it finds each
// whose fault shows in what callers see, and nothing wrong with a sound one.
func TestNemesis(t *testing.T) {
	t.Parallel()
	for name := range broken {
		_, found := hunts[name]
		if found == (name == unseen) {
			t.Errorf("%q: is it found or not?", name)
		}
	}
	all := os.Getenv("LOCKER_CONFORMANCE") == "all"
	var faults []string
	for _, f := range soak.Faults() {
		faults = append(faults, f.Name)
	}
	for i, s := range soaked() {
		h, ok := hunts[s.Name]
		switch s.Name {
		case sound, soundUnfenced:
			h, ok = hunt{quick: s.Name == sound}, true
		case soundFaulted:
			h, ok = hunt{faults: faults, length: 30 * time.Second}, true
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
			s := soaked()[i]
			s.Server = serveRESP(t, harness)
			if h.loses {
				go loseNowAndThen(t.Context(), harness.Injector)
			}
			cfg := soak.Config{
				Strategies: []soak.Strategy{s},
				Duration:   cmp.Or(h.length, 8*time.Second),
				Seed:       1,
				Faults:     append([]string{}, h.faults...),
				Storm:      cmp.Or(h.storm, 4*time.Second),
				Calm:       4 * time.Second,
				TTLs:       h.ttls,
				Keys:       cmp.Or(h.keys, 16),
				Callers:    h.callers,
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
			found := report.Stats[0].Found
			if h.loses {
				delete(found, soak.Unavailable)
			}
			if h.want != "" && found[h.want] == 0 || h.want == "" && len(found) > 0 {
				t.Errorf("want %s: %v", cmp.Or(string(h.want), "nothing"), report)
			}
			t.Logf("%d operations, found %v", report.Operations(), found)
			t.Log(report)
		})
	}
}
