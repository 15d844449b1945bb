package soak_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/redisconn"
	"github.com/distlock/locker/internal/redisdriver"
	"github.com/distlock/locker/internal/test/soak"
	"github.com/distlock/locker/strategy/redlock"
	"github.com/distlock/locker/strategy/setnx"
	"github.com/redis/go-redis/v9"
)

// planted is a locker with a bug, and how the nemesis finds it. The locker is setnx
// with other scripts or with a driver around it, or what New makes.
type planted struct {
	name    string
	scripts map[string][2]string // by name: what is taken out, and what put in
	acquire func(context.Context, driver.Driver, driver.Request) (driver.Answer, error)
	claim   func(driver.Claim) driver.Claim // which is sent instead
	late    time.Duration                   // how long one release in eight takes to the store
	opts    []locker.Option
	New     func(soak.Process) (locker.Locker, error)

	want    soak.Kind
	on      soak.Topology // default soak.Single
	permits int           // of each key; 0: they are locks
	acked   bool
	faults  []string // default none
	ttls    []time.Duration
	keys    int           // default 16
	length  time.Duration // default 6 s
	quick   bool          // in each test run
}

const (
	releaseCheck = "if redis.pcall('GET', lock) ~= claim then\n  return 0\nend\n"
	short        = 300 * time.Millisecond
)

var unrenewed = []locker.Option{locker.WithoutRenewal()}

var bugs = []planted{
	{
		// A release that arrives after the lease has ended frees what others hold by then.
		name: "release without a look at the owner", quick: true, want: soak.Overlap,
		scripts: map[string][2]string{"release": {releaseCheck, ""}}, late: short * 7 / 6,
		opts: unrenewed, keys: 4, ttls: []time.Duration{short},
	},
	{
		name: "tokens repeat", quick: true, want: soak.TokenOrder, length: 2 * time.Second,
		acquire: func(ctx context.Context, d driver.Driver, req driver.Request) (driver.Answer, error) {
			a, err := d.Acquire(ctx, req)
			a.Token -= a.Token % 1_000_000 // whole seconds
			return a, err
		},
	},
	{
		// An acquire that arrives twice counts two; one release leaves one.
		name: "counts are incremented", want: soak.Stall,
		faults: []string{"duplicate"}, ttls: []time.Duration{8 * time.Second}, length: 15 * time.Second,
		scripts: map[string][2]string{
			"acquire": {"    extend(lock, ttl)\n", "    extend(lock, ttl)\n    redis.call('INCR', lock .. ':n')\n"},
			"release": {"redis.call('DEL', lock)\n", "if redis.call('DECR', lock .. ':n') >= 0 then\n  return 1\nend\nredis.call('DEL', lock, lock .. ':n')\n"},
		},
	},
	{
		// A lock that was lost with the data of the server is made again under its next holder.
		name: "renewal revives", want: soak.LateLoss, faults: []string{"flush"}, length: 10 * time.Second,
		scripts: map[string][2]string{"renew": {releaseCheck, "redis.call('SET', lock, claim, 'PX', ttl)\n"}},
	},
	{
		// The store's lease ends as much before the holder's as the reply took.
		name: "deadline counted from the reply", want: soak.Overlap, keys: 4, ttls: []time.Duration{short}, opts: unrenewed,
		acquire: func(ctx context.Context, d driver.Driver, req driver.Request) (driver.Answer, error) {
			req.TTL -= 100 * time.Millisecond
			return d.Acquire(ctx, req)
		},
	},
	{
		name: "claim ids used again", want: soak.Overlap, faults: []string{"lose-reply", "hang-reply"}, length: 15 * time.Second,
		claim: func(c driver.Claim) driver.Claim {
			c.ID, _, _ = strings.Cut(c.ID, ":")
			return c
		},
	},
	{
		name: "weights are ignored", quick: true, permits: 4, want: soak.Overlap, keys: 4, length: 3 * time.Second,
		acquire: func(ctx context.Context, d driver.Driver, req driver.Request) (driver.Answer, error) {
			req.Permits = 1
			return d.Acquire(ctx, req)
		},
	},
	{
		// The permits of a process that was killed are not free after its TTL.
		name: "permits of the dead are kept", permits: 4, want: soak.Leak, faults: []string{"kill"}, length: 10 * time.Second,
		acquire: func(ctx context.Context, d driver.Driver, req driver.Request) (driver.Answer, error) {
			req.TTL = time.Hour
			return d.Acquire(ctx, req)
		},
	},
	{
		name: "processes that do not agree on the nodes", want: soak.Overlap, on: soak.Quorum,
		New: func(p soak.Process) (locker.Locker, error) {
			return redlock.New(p.Clients[p.Index:p.Index+3], p.Options...)
		},
	},
	{
		// Locks that the master alone has granted are lost with it.
		name: "replicas are not waited for", want: soak.Overlap, on: soak.Cluster, acked: true,
		New:    func(p soak.Process) (locker.Locker, error) { return setnx.New(p.Clients[0], p.Options...) },
		faults: []string{"kill-ahead"}, ttls: []time.Duration{3 * time.Second}, keys: 64, length: 30 * time.Second,
	},
}

func plantedStrategies() (all []soak.Strategy) {
	for _, b := range bugs {
		if b.New == nil {
			b.New = b.locker
		}
		all = append(all, soak.Strategy{Name: b.name, On: []soak.Topology{cmp.Or(b.on, soak.Single)}, Permits: b.permits, Acked: b.acked, New: b.New})
	}
	return all
}

// locker makes setnx with the bug.
func (b planted) locker(p soak.Process) (locker.Locker, error) {
	d, err := redisdriver.NewDriver(p.Clients[0].(*redis.Client), redisdriver.Protocol{
		Name: "planted", Acquire: b.script("acquire"), Renew: b.script("renew"), Release: b.script("release"),
	})
	if err != nil {
		return nil, err
	}
	if b.acquire == nil {
		b.acquire = func(ctx context.Context, d driver.Driver, req driver.Request) (driver.Answer, error) {
			return d.Acquire(ctx, req)
		}
	}
	if b.claim == nil {
		b.claim = func(c driver.Claim) driver.Claim { return c }
	}
	opts := append(p.Options, b.opts...)
	if b.permits > 0 {
		return locker.New(struct {
			bent
			redisdriver.PermitKeeper
		}{bent{d, b}, redisdriver.NewPermitKeeper(d)}, opts...)
	}
	return locker.New(bent{d, b}, opts...)
}

// script is one of setnx's, with what was put into it.
func (b planted) script(name string) *redisconn.Script {
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "strategy", "setnx", "lua", name+".lua"))
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

// bent is a driver with a bug.
type bent struct {
	driver.Driver
	b planted
}

func (d bent) Acquire(ctx context.Context, req driver.Request) (driver.Answer, error) {
	req.Claim = d.b.claim(req.Claim)
	return d.b.acquire(ctx, d.Driver, req)
}

func (d bent) Renew(ctx context.Context, claims []driver.Claim, answer func(int, error)) {
	renamed := make([]driver.Claim, len(claims))
	for i, c := range claims {
		renamed[i] = d.b.claim(c)
	}
	d.Driver.Renew(ctx, renamed, answer)
}

func (d bent) Release(ctx context.Context, c driver.Claim) error {
	if d.b.late > 0 && rand.IntN(8) == 0 {
		time.Sleep(d.b.late) // the release is on its way
	}
	return d.Driver.Release(ctx, d.b.claim(c))
}

// TestFindsPlantedBugs: each locker is broken in one way, and the nemesis says in
// which, with what a person needs who looks for the reason.
func TestFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	for i, b := range bugs {
		if (!b.quick || testing.Short()) && !full() {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report, err := soak.Run(t.Context(), soak.Config{
				Strategies: plantedStrategies()[i : i+1],
				Duration:   cmp.Or(b.length, 6*time.Second),
				Seed:       1,
				Faults:     append([]string{}, b.faults...),
				Storm:      20 * time.Second, // of these alone
				TTLs:       b.ttls,
				Keys:       cmp.Or(b.keys, 16),
				Dir:        t.TempDir(),
			})
			if err != nil {
				t.Fatal(err)
			}
			if report.Found[b.want] == 0 {
				t.Errorf("no %s was found:\n%v", b.want, report)
			}
			for _, v := range report.Violations {
				if !strings.Contains(v.Again, "-seed=1 ") || !strings.Contains(v.Timeline, "granted") {
					t.Errorf("the seed or the timeline is missing:\n%v", v)
				}
			}
			t.Logf("%d operations, found %v", report.Operations(), report.Found)
		})
	}
}
