package soak_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/soak"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/redis/go-redis/v9"
)

// planted is a locker with a bug, and how the nemesis finds it. The locker is setnx
// with other scripts or with a driver around it.
type planted struct {
	name    string
	scripts map[string][2]string // by name: what is taken out, and what put in
	wrap    func(driver.Driver, *redis.Client) driver.Driver
	opts    []locker.Option
	nodes   int // more than one: redlock, on some of them

	want   soak.Kind
	faults []string
	ttls   []time.Duration
	keys   int           // default 16
	length time.Duration // default 6 s
	quick  bool          // in each test run
}

const (
	releaseCheck = "if redis.pcall('GET', lock) ~= claim then\n  return 0\nend\n"
	short        = 300 * time.Millisecond
)

var bugs = []planted{
	{
		// An Unlock after the lease has ended frees what others hold by then.
		name: "release without a look at the owner", quick: true, want: soak.Overlap, length: 15 * time.Second,
		scripts: map[string][2]string{"release": {releaseCheck, ""}},
		opts:    []locker.Option{locker.WithoutRenewal()}, keys: 4, ttls: []time.Duration{short},
	},
	{
		name: "tokens repeat", quick: true, want: soak.TokenOrder, length: 2 * time.Second,
		wrap: func(d driver.Driver, _ *redis.Client) driver.Driver { return coarseTokens{d} },
	},
	{
		name: "goroutines stay", quick: true, want: soak.LeakedGoroutine, length: time.Second,
		wrap: func(d driver.Driver, _ *redis.Client) driver.Driver { return leaky{d} },
	},
	{
		// An acquire that arrives twice counts two; one release leaves one.
		name: "counts are incremented", want: soak.Stall,
		faults: []string{"duplicate"}, ttls: []time.Duration{8 * time.Second}, length: 15 * time.Second,
		scripts: map[string][2]string{
			"acquire": {"local remaining = redis.call('PTTL', lock)\n", `
if redis.call('EXISTS', lock) == 0 or redis.call('HEXISTS', lock, claim) == 1 then
  redis.call('HINCRBY', lock, claim, 1)
  redis.call('PEXPIRE', lock, ttl)
  return {1, issue(fence, retention, tokens), tonumber(tokens)}
end
local remaining = redis.call('PTTL', lock)
`},
			"renew": {"redis.pcall('GET', lock) ~= claim", "redis.call('HEXISTS', lock, claim) == 0"},
			"release": {releaseCheck, `
if redis.call('HEXISTS', lock, claim) == 0 then
  return 0
end
if redis.call('HINCRBY', lock, claim, -1) > 0 then
  return 1
end
`},
		},
	},
	{
		// A lock lost with the data of the server is taken anew under its holder.
		name: "renewal revives", want: soak.LateLoss, faults: []string{"flush"}, length: 10 * time.Second,
		scripts: map[string][2]string{"renew": {releaseCheck, "redis.call('SET', lock, claim, 'PX', ttl)\n"}},
	},
	{
		name: "deadline counted from the reply", want: soak.FalseLoss, faults: []string{"late-reply"}, length: 15 * time.Second,
		wrap: func(d driver.Driver, rdb *redis.Client) driver.Driver { return fromReply{d, rdb} },
		opts: []locker.Option{locker.WithoutRenewal()}, keys: 4, ttls: []time.Duration{500 * time.Millisecond},
	},
	{
		name: "wake-up dropped and no polling", want: soak.Stall, length: 8 * time.Second,
		wrap: func(d driver.Driver, _ *redis.Client) driver.Driver {
			return &trusting{Driver: d, refused: make(map[string]time.Time)}
		},
	},
	{
		name: "claim ids used again", want: soak.Overlap, faults: []string{"lose-reply", "reset-reply"}, length: 15 * time.Second,
		wrap: func(d driver.Driver, _ *redis.Client) driver.Driver { return sameID{d} },
	},
	{
		name: "processes that do not agree on the nodes", want: soak.Overlap, nodes: 5,
	},
	{
		name: "keys stay", want: soak.LeakedKey, length: 2 * time.Second,
		scripts: map[string][2]string{"release": {"redis.call('DEL', lock)\n", "redis.call('DEL', lock)\nredis.call('SET', lock .. ':was', 1)\n"}},
	},
}

func plantedStrategies() []soak.Strategy {
	var all []soak.Strategy
	for _, b := range bugs {
		all = append(all, soak.Strategy{Name: b.name, Nodes: b.nodes, New: func(p soak.Process) (locker.Locker, error) {
			if b.nodes > 1 {
				return redlock.New(p.Clients[p.Index:p.Index+3], p.Options...)
			}
			return b.locker(p.Clients[0].(*redis.Client), p.Options...)
		}})
	}
	return all
}

// locker makes the Locker with the bug.
func (b planted) locker(rdb *redis.Client, opts ...locker.Option) (locker.Locker, error) {
	setnx, err := redisdriver.NewDriver(rdb, redisdriver.Protocol{
		Name: "planted", Acquire: b.script("acquire"), Renew: b.script("renew"), Release: b.script("release"),
	})
	if err != nil {
		return nil, err
	}
	var d driver.Driver = setnx
	if b.wrap != nil {
		d = b.wrap(d, rdb)
	}
	return locker.New(d, append(opts, b.opts...)...)
}

// script is one of setnx's, with what was put into it.
func (b planted) script(name string) *redisdriver.Script {
	source, err := os.ReadFile(filepath.Join("..", "..", "strategy", "setnx", "lua", name+".lua"))
	if err != nil {
		panic(err)
	}
	bug, there := b.scripts[name]
	if there && strings.Count(string(source), bug[0]) != 1 {
		panic(name + ".lua is not what the bug was made for")
	}
	file := &fstest.MapFile{Data: []byte(strings.Replace(string(source), bug[0], bug[1], 1))}
	return redisdriver.NewScript(name, fstest.MapFS{"lua/" + name + ".lua": file})
}

// TestFindsPlantedBugs: each locker is broken in one way, and the nemesis says in
// which.
func TestFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	for i, b := range bugs {
		if (!b.quick || testing.Short()) && os.Getenv("LOCKER_CONFORMANCE") != "all" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report, err := soak.Run(t.Context(), soak.Config{
				Strategies: plantedStrategies()[i : i+1],
				Duration:   cmp.Or(b.length, 6*time.Second),
				Seed:       1,
				Faults:     append([]string{}, b.faults...),
				Storm:      time.Minute, // none but these
				TTLs:       b.ttls,
				Keys:       cmp.Or(b.keys, 16),
				Dir:        t.TempDir(),
			})
			if err != nil {
				t.Fatal(err)
			}
			if !report.Has(b.want) {
				t.Errorf("no %s was found:\n%v", b.want, report)
			}
			for _, v := range report.Violations {
				wantEvidence(t, v)
			}
			t.Logf("%d operations, found %v", report.Operations(), report.Stats[0].Found)
		})
	}
}

// wantEvidence wants a violation to say what a person needs who looks for the reason.
func wantEvidence(t *testing.T, v soak.Violation) {
	t.Helper()
	if v.Seed != 1 || !strings.Contains(v.Again, "-seed=1 ") {
		t.Errorf("%s: seed %d, again: %s; want the seed given", v.Kind, v.Seed, v.Again)
	}
	if v.Key != "" && !strings.Contains(v.Timeline, "granted token") {
		t.Errorf("%s: the timeline does not tell of grants:\n%s", v.Kind, v.Timeline)
	}
	if v.Kind == soak.NoOrder {
		if _, err := os.Stat(v.Picture); err != nil {
			t.Errorf("%s: no picture: %v", v.Kind, err)
		}
	}
}

// coarseTokens issues tokens that are whole seconds.
type coarseTokens struct{ driver.Driver }

func (d coarseTokens) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	a, err := d.Driver.Acquire(ctx, req)
	a.Token -= a.Token % 1_000_000
	return a, err
}

// fromReply has what a lease counted from the reply has: it ends in the store as much
// earlier than its holder thinks as the reply took.
type fromReply struct {
	driver.Driver
	rdb *redis.Client
}

var shorten = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], math.max(1, redis.call('PTTL', KEYS[1]) - ARGV[2]))
end
return 1`)

func (d fromReply) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	sent := time.Now()
	a, err := d.Driver.Acquire(ctx, req)
	if took := time.Since(sent); err == nil && a.Granted {
		_ = shorten.Run(ctx, d.rdb, []string{req.Key}, req.ID, took.Milliseconds()).Err()
	}
	return a, err
}

// trusting asks the store again only when it was signalled, which it never is.
type trusting struct {
	driver.Driver
	mu      sync.Mutex
	refused map[string]time.Time
}

func (d *trusting) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	d.mu.Lock()
	last, again := d.refused[req.Key]
	d.mu.Unlock()
	if req.Wait && again && time.Since(last) < time.Minute {
		return driver.Answer{}, nil
	}
	a, err := d.Driver.Acquire(ctx, req)
	d.mu.Lock()
	defer d.mu.Unlock()
	if delete(d.refused, req.Key); err == nil && !a.Granted {
		d.refused[req.Key] = time.Now()
	}
	a.NoWakeUp = false
	return a, err
}

func (d *trusting) Watch(context.Context, string) (driver.Watch, error) { return silence{}, nil }

type silence struct{}

func (silence) C() <-chan struct{} { return nil }
func (silence) Close()             {}

// sameID gives all grants of a key in a process one name.
type sameID struct{ driver.Driver }

func same(c driver.Claim) driver.Claim {
	c.ID, _, _ = strings.Cut(c.ID, ":")
	return c
}

func (d sameID) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Claim = same(req.Claim)
	return d.Driver.Acquire(ctx, req)
}

func (d sameID) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	renamed := make([]driver.Claim, len(claims))
	for i, c := range claims {
		renamed[i] = same(c)
	}
	d.Driver.Renew(ctx, renamed, answer)
}

func (d sameID) Release(ctx context.Context, c driver.Claim) error {
	return d.Driver.Release(ctx, same(c))
}

// leaky starts a goroutine for each grant, and does not end it.
type leaky struct{ driver.Driver }

func (d leaky) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	a, err := d.Driver.Acquire(ctx, req)
	if a.Granted {
		go leak()
	}
	return a, err
}

func leak() { select {} }
