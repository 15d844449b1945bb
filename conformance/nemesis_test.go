package conformance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/conformance/soak"
	"github.com/redis/go-redis/v9"
)

// serveRESP serves a fakeStore, and on it d, as the soak wants it.
func serveRESP(tb testing.TB, s *fakeStore, d locker.Driver) (addr string) {
	tb.Helper()
	srv, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Close)
	h := &fakeHarness{s: s}
	remote := &Remote{d}
	for name, f := range map[string]server.Cmd{
		"EVALSHA": func(c *server.Peer, _ string, args []string) {
			var command Command
			var reply Reply
			if err := json.Unmarshal([]byte(args[0]), &command); err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			_ = remote.Do(command, &reply)
			text, err := json.Marshal(reply)
			if err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			c.WriteBulk(string(text))
		},
		"FLUSHALL": func(c *server.Peer, _ string, _ []string) {
			_ = h.Flush(context.Background())
			c.WriteOK()
		},
		"CLIENT": func(c *server.Peer, _ string, _ []string) { c.WriteBulk("") }, // nobody is subscribed
		"SCAN": func(c *server.Peer, _ string, _ []string) {
			keys, _ := h.Keys(context.Background())
			c.WriteLen(2)
			c.WriteBulk("0")
			c.WriteLen(len(keys))
			for _, k := range keys {
				c.WriteBulk(k.Name)
			}
		},
		"PTTL": func(c *server.Peer, _ string, args []string) {
			keys, _ := h.Keys(context.Background())
			for _, k := range keys {
				if k.Name == args[0] {
					if k.TTL < 0 {
						c.WriteInt(-1)
						return
					}
					c.WriteInt(int(k.TTL.Milliseconds()))
					return
				}
			}
			c.WriteInt(-2)
		},
	} {
		if err := srv.Register(name, f); err != nil {
			tb.Fatal(err)
		}
	}
	return srv.Addr().String()
}

// newRESPRemote makes a remote on a server of serveRESP.
func newRESPRemote(client redis.UniversalClient) remote {
	o := *client.(*redis.Client).Options()
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	rdb := redis.NewClient(&o)
	return remote{func(ctx context.Context, c Command) (reply Reply, err error) {
		text, err := json.Marshal(c)
		if err != nil {
			return Reply{}, err
		}
		answer, err := rdb.Do(ctx, "evalsha", string(text)).Text()
		if err != nil {
			return Reply{}, err
		}
		err = json.Unmarshal([]byte(answer), &reply)
		return reply, err
	}, rdb.Close}
}

// A sound strategy, and one on a store that loses.
const (
	sound       = "sound"
	soundLosing = "sound, replies lost"
)

// soaked are the broken strategies as the soak knows them, and sound ones.
func soaked() []soak.Strategy {
	var all []soak.Strategy
	add := func(name string, f fake) {
		all = append(all, soak.Strategy{Name: name, New: func(p soak.Process) (locker.Locker, error) {
			l, err := locker.New(newRESPRemote(p.Clients[0]), f.opts...)
			if err == nil && f.wrap != nil {
				l = f.wrap(l)
			}
			return l, err
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		add(name, broken[name].fake)
	}
	add(sound, fakeCounting)
	add(soundLosing, fakeCounting)
	return all
}

// loseNowAndThen loses commands and replies until ctx is done.
func (s *fakeStore) loseNowAndThen(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		op := []conformance.Op{conformance.OpAcquire, conformance.OpRenew, conformance.OpRelease}[n%3]
		kind := []string{"lose", "lose command"}[n/3%2]
		s.mu.Lock()
		if len(s.faults[op]) == 0 {
			s.faults[op] = []fault{{kind: kind}}
		}
		s.mu.Unlock()
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
	// loses: the store loses commands and replies. The nemesis does not know, so that
	// it is right to wonder why the store is unavailable.
	loses bool
}

var (
	flushes = []string{"flush"}
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
	"shortens on re-entry":                       {want: soak.Overlap, ttls: seconds, length: 15 * time.Second},
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
}

// Why the nemesis cannot find the others.
const (
	notDone     = "it is about keys, options, observers or Close, with which the soak does nothing"
	notMade     = "the trouble it takes wrongly is none that the soak makes for a store of others"
	withinTTL   = "what a dead holder leaves may stay for as long as that"
	inStore     = "what it leaves is in the store's process"
	noWatch     = "the soak's processes poll a store of others"
	claimsOnly  = "only what it says of itself is wrong"
	noFurtherIn = "the soak always asks for tokens, and reads all of them"
)

var unseen = map[string]string{
	"cannot release after Close": notDone, "closes the store": notDone, "does not close": notDone, "fails to close twice": notDone,
	"cuts keys at NUL": notDone, "cuts long keys": notDone, "drops prefixes": notDone, "ignores case": notDone, "trims keys": notDone,
	"takes foreign locks": notDone, "waits for foreign things": notDone, "takes any driver option": notDone, "lets bad calls pass": notDone,
	"tells no observer":                 notDone,
	"keeps the store's words to itself": notMade, "rides out what needs a person": notMade, "needs its scripts": notMade,
	"counts TTLs in seconds": withinTTL,
	"leaves goroutines":      inStore, "leaves goroutines after Close": inStore, "remembers keys": inStore, "leaves a key for each waiter": noWatch,
	"hangs in Watch": noWatch, "is not notified again": noWatch, "loses every wake-up": noWatch, "waits for wake-ups whatever happens": noWatch,
	"claims stored holds": claimsOnly, "hides stored holds": claimsOnly, "claims to be fair": claimsOnly, "claims to be notified": claimsOnly, "hides fencing": claimsOnly,
	"has tokens beyond 2^53": noFurtherIn, "issues tokens unasked": noFurtherIn,
}

// TestNemesis sets the nemesis of package soak on the broken strategies: it finds each
// whose fault shows in what callers see, and nothing wrong with a sound one.
func TestNemesis(t *testing.T) {
	t.Parallel()
	for name := range broken {
		_, found := hunts[name]
		if _, not := unseen[name]; found == not {
			t.Errorf("%q: is it found or not?", name)
		}
	}
	all := os.Getenv("LOCKER_CONFORMANCE") == "all"
	for i, s := range soaked() {
		h, ok := hunts[s.Name]
		switch s.Name {
		case sound:
			h, ok = hunt{quick: true}, true
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
			store := newFakeStore()
			s := soaked()[i]
			s.Server = serveRESP(t, store, f.driver(store))
			if h.loses {
				go store.loseNowAndThen(t.Context())
			}
			cfg := soak.Config{
				Strategies: []soak.Strategy{s},
				Duration:   cmp.Or(h.length, 8*time.Second),
				Seed:       1,
				Faults:     append([]string{}, h.faults...),
				Storm:      4 * time.Second,
				Calm:       4 * time.Second,
				TTLs:       h.ttls,
				Keys:       cmp.Or(h.keys, 16),
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
		})
	}
}
