package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/distlock/locker/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// arena is where one strategy is tested for a round: its servers, its processes, and
// what befell them.
type arena struct {
	cfg      Config
	strategy Strategy
	seed     uint64
	dir      string
	stage    *stage
	nodes    []*node
	socket   string // of the server with the guarded resource
	resource *resourceClient

	mu         sync.Mutex
	workers    []*process // those that run, by index
	all        []*process // and those that have ended
	events     []event
	violations []Violation
	stale      int
	locks      map[string]uint16  // the keys, by what they are in the store
	things     map[string]instant // until when the nemesis had something there
}

// node is a server and the link to it.
type node struct {
	name   string
	server *redistest.Server // nil: it is the caller's
	dir    string            // of its data
	link   *link
	admin  *redis.Client
}

func newArena(cfg Config, s Strategy, seed uint64, dir string, st *stage) *arena {
	a := &arena{cfg: cfg, strategy: s, seed: seed, dir: dir, stage: st, workers: make([]*process, cfg.Processes), locks: make(map[string]uint16), things: make(map[string]instant)}
	for n := range uint16(cfg.Keys) {
		a.locks[keyText(n)] = n
	}
	for i := range max(1, s.Nodes) {
		a.nodes = append(a.nodes, newNode(st, fmt.Sprint("node", i), s.Server))
	}
	resource := redistest.Start(st)
	a.socket = resource.Socket()
	rdb := adminClient(resource)
	st.Cleanup(func() { _ = rdb.Close() })
	a.resource = &resourceClient{rdb, s.Name}
	return a
}

func newNode(st *stage, name, server string) *node {
	n := &node{name: name}
	if server == "" {
		var err error
		if n.dir, err = os.MkdirTemp(memoryDir(), "locker-soak-"); err != nil {
			st.Fatal(err)
		}
		st.Cleanup(func() { _ = os.RemoveAll(n.dir) })
		n.server = redistest.Start(st, redistest.WithAOF(), redistest.WithDir(n.dir))
		n.admin = adminClient(n.server)
		server = n.server.Addr()
	} else {
		n.admin = redis.NewClient(&redis.Options{Addr: server, ReadTimeout: 10 * time.Second, PoolSize: 2})
	}
	var err error
	if n.link, err = newLink(server); err != nil {
		st.Fatal(err)
	}
	st.Cleanup(func() {
		if err := n.link.Close(); err != nil {
			st.Error(err)
		}
		_ = n.admin.Close()
	})
	return n
}

// memoryDir is a directory on a file system that syncs in no time, if there is one.
// A log is to survive kill -9, not a power cut.
func memoryDir() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return ""
}

func adminClient(s *redistest.Server) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket(), ReadTimeout: 10 * time.Second, PoolSize: 2})
}

// do sends a command past the link; that a server which is being made trouble for
// does not take it is part of the trouble.
func (n *node) do(command ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = n.admin.Do(ctx, command...).Err()
}

// down kills the server. Nobody gets through to whoever may borrow its port.
func (n *node) down() {
	n.server.Kill()
	n.link.Refuse(true)
}

func (n *node) up(st *stage) {
	n.server.Restart(st)
	n.link.Refuse(false)
}

func (a *arena) tell(e event) {
	e.to = now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

func (a *arena) violate(v Violation) {
	v.Strategy = a.strategy.Name
	a.mu.Lock()
	defer a.mu.Unlock()
	a.violations = append(a.violations, v)
}

// holdsThing says until when the nemesis has something at a key.
func (a *arena) holdsThing(key string, until instant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.things[key] = until
}

// start starts the next process with this index.
func (a *arena) start(index int) {
	a.mu.Lock()
	n := len(a.all)
	a.mu.Unlock()
	spec := workerSpec{
		Strategy: a.strategy.Name,
		Process:  index,
		Seed:     a.seed + uint64(n)<<32,
		Resource: a.socket,
		Log:      filepath.Join(a.dir, fmt.Sprintf("%s.%d.log", a.strategy.Name, n)),
		Callers:  a.cfg.Callers,
		Keys:     a.cfg.Keys,
		TTLs:     a.cfg.TTLs,
	}
	for _, node := range a.nodes {
		spec.Nodes = append(spec.Nodes, node.link.Addr())
	}
	p, err := startProcess(fmt.Sprint("p", n), spec)
	if err != nil {
		a.stage.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.workers[index] = p
	a.all = append(a.all, p)
}

func (a *arena) worker(index int) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[index]
}

func (a *arena) replace(p *process) { a.start(p.index) }

// run plays a round: until ctx is done there is work and trouble, then everything is
// given back.
func (a *arena) run(ctx context.Context) {
	a.stage.Cleanup(func() {
		for _, p := range a.all {
			p.kill()
		}
	})
	for i := range a.cfg.Processes {
		a.start(i)
	}
	var watching sync.WaitGroup
	watching.Go(func() { a.watchTTLs(ctx) })
	newNemesis(a).run(ctx)
	watching.Wait()
	if a.stage.ctx.Err() != nil {
		return // something is broken
	}
	if !a.drain() {
		return
	}
	a.wantNobodyWaiting()
	a.wantNoKeys()
	a.wantNoGrowth()
	a.close()
	n, err := a.resource.stale(context.Background())
	if err != nil {
		a.stage.Error(err)
	}
	a.stale = n
}

// drain lets all callers finish. It reports false when some did not.
func (a *arena) drain() bool {
	for _, p := range a.workers {
		p.tell(sayDrain)
	}
	ok := true
	// The longest hold, and then an Unlock that is tried three times.
	end := time.Now().Add(3*a.cfg.maxTTL() + 30*time.Second + a.cfg.Slack)
	for _, p := range a.workers {
		if _, err := p.hear(sayDrained, max(time.Until(end), time.Second)); err != nil {
			ok = false
			a.stuck(p, err)
		}
	}
	return ok
}

// stuck notes that p did not say what it was to say.
func (a *arena) stuck(p *process, err error) {
	if why := p.crashed(); why != "" {
		a.violate(Violation{Kind: Crash, Text: p.name + " ended: " + why})
	} else {
		a.violate(Violation{Kind: Stuck, Text: err.Error() + "; its goroutines:\n" + p.dump()})
	}
}

// eventually polls until f finds nothing wrong, and returns what it found last: stores
// and processes tell of no event.
func eventually(patience time.Duration, f func() string) string {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		wrong := f()
		if wrong == "" || time.Now().After(end) {
			return wrong
		}
	}
}
