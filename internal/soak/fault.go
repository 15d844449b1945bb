package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Fault is something the nemesis does.
type Fault struct {
	Name string
	Doc  string

	// on a process or on a node: one of them is set. They return when it is
	// over.
	onProcess func(*trouble, *process)
	onNode    func(*trouble, *node)

	// harmless: commands are answered nevertheless, so that a free lock has to
	// be taken in time.
	harmless bool
	// twice: commands arrive twice.
	twice bool
	// loses data, and with it locks unless there are other nodes.
	loses bool
	// single: not for strategies on several nodes.
	single bool
	// redis: not for servers that are no Redis.
	redis bool
	// full: the server says that it is out of memory.
	full bool
	// plants something at a key that is no lock.
	plants bool
	// silences: wake-ups are lost.
	silences bool
}

// trouble is one occurrence of a fault.
type trouble struct {
	a   *arena
	ctx context.Context // done when it should come to its end
	r   *rand.Rand
	key *uint16 // the key it befell, if it was one
}

func (t *trouble) between(least, most time.Duration) time.Duration {
	return least + time.Duration(t.r.Int64N(int64(most-least)+1))
}

func (t *trouble) sleep(d time.Duration) { sleep(t.ctx, d) }

// sometimes lets c be for some of the commands, for a while.
func (t *trouble) sometimes(c *chance) {
	c.Store(20 + t.r.Int32N(400))
	t.sleep(t.between(200*time.Millisecond, 1500*time.Millisecond))
	c.Store(0)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Faults lists what the nemesis can do.
func Faults() []Fault {
	return []Fault{
		{Name: "freeze", Doc: "a process stands still (SIGSTOP) for half a TTL to three", onProcess: freeze},
		{Name: "kill", Doc: "a process is killed (kill -9), and another one started", onProcess: kill},

		{Name: "restart", Doc: "a server is killed and started with its data", onNode: restart, redis: true},
		{Name: "lose-data", Doc: "a server is killed and started empty", onNode: loseData, loses: true, redis: true},
		{Name: "flush", Doc: "FLUSHALL", onNode: flush, loses: true, single: true},
		{Name: "pause", Doc: "a server stands still (SIGSTOP) for up to two TTLs", onNode: pause, redis: true},
		{Name: "client-kill", Doc: "CLIENT KILL of all connections but subscriptions", onNode: admin("client", "kill", "type", "normal")},
		{Name: "signal-kill", Doc: "CLIENT KILL of all subscriptions", onNode: admin("client", "kill", "type", "pubsub"), harmless: true, silences: true},
		{Name: "client-pause", Doc: "CLIENT PAUSE for up to two TTLs", onNode: clientPause},
		{Name: "script-flush", Doc: "SCRIPT FLUSH", onNode: admin("script", "flush"), harmless: true},
		{Name: "full", Doc: "a server is out of memory (maxmemory) for up to three TTLs", onNode: fill, full: true},
		{Name: "foreign", Doc: "something that is no lock is put at a free key for up to four TTLs", onNode: plant, harmless: true, plants: true, single: true},

		{Name: "lose-reply", Doc: "commands are applied, their replies lost, connections closed", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.loseReply) }},
		{Name: "hang-reply", Doc: "commands are applied, their replies never come", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.hangReply) }},
		{Name: "reset-reply", Doc: "commands are applied, connections reset", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.resetAfter) }},
		{Name: "duplicate", Doc: "commands arrive twice", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.duplicate) }, harmless: true, twice: true},
		{Name: "delay", Doc: "commands arrive late, be it after their sender has given up", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.delay[t.r.IntN(len(delays))]) }},
		{Name: "late-reply", Doc: "replies come late", onNode: func(t *trouble, n *node) { t.sometimes(&n.link.lateReply[t.r.IntN(len(delays))]) }},
		{Name: "black-hole", Doc: "a link goes silent for up to two TTLs", onNode: blackHole},
		{Name: "lose-messages", Doc: "the links of subscriptions go silent", onNode: loseMessages, harmless: true, silences: true},
		{Name: "refuse", Doc: "connections are cut and refused", onNode: refuse},
		{Name: "reset", Doc: "all connections are reset", onNode: func(_ *trouble, n *node) { n.link.Reset() }},
		{Name: "throttle", Doc: "a link passes on a few KB a second", onNode: throttle},
	}
}

func faultNames() string {
	var names []string
	for _, f := range Faults() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

func freeze(t *trouble, p *process) {
	p.freeze()
	t.sleep(t.between(t.a.cfg.maxTTL()/2, 3*t.a.cfg.maxTTL()))
	p.thaw()
}

func kill(t *trouble, p *process) {
	p.kill()
	t.a.replace(p)
}

func restart(t *trouble, n *node) {
	n.down()
	t.sleep(t.between(0, 300*time.Millisecond))
	n.up(t.a.stage)
}

func loseData(t *trouble, n *node) {
	n.down()
	if len(t.a.nodes) > 1 {
		// The claims it knew of have to expire before it may vote again: time passing is
		// the subject.
		most := t.a.cfg.maxTTL()
		time.Sleep(t.between(most+most/5+100*time.Millisecond, 2*most))
	} else {
		t.sleep(t.between(0, 300*time.Millisecond))
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "appendonlydir")); err != nil {
		t.a.stage.Error(err)
	}
	n.up(t.a.stage)
}

func flush(_ *trouble, n *node) { n.do("flushall") }

func pause(t *trouble, n *node) {
	n.server.Pause()
	t.sleep(t.between(0, 2*t.a.cfg.maxTTL()))
	n.server.Resume()
}

func admin(command ...any) func(*trouble, *node) {
	return func(_ *trouble, n *node) { n.do(command...) }
}

func clientPause(t *trouble, n *node) {
	d := t.between(0, 2*t.a.cfg.maxTTL())
	n.do("client", "pause", d.Milliseconds())
	t.sleep(d)
	n.do("client", "unpause")
}

func fill(t *trouble, n *node) {
	n.do("config", "set", "maxmemory", "1")
	t.sleep(t.between(200*time.Millisecond, 3*t.a.cfg.maxTTL()))
	n.do("config", "set", "maxmemory", "0")
}

// plant makes a list of a key that is free: a list at a lock is refused by the server.
func plant(t *trouble, n *node) {
	const tries = 20
	for range tries {
		lock := uint16(t.r.IntN(t.a.cfg.Keys))
		key := keyText(lock)
		t.a.holdsThing(key, forever)
		ctx := context.Background()
		if n.admin.LPush(ctx, key, "foreign").Err() != nil {
			t.a.holdsThing(key, 0)
			continue
		}
		t.key = &lock
		planted := now()
		t.sleep(t.between(t.a.cfg.maxTTL(), 4*t.a.cfg.maxTTL()))
		if there, err := n.admin.LPop(ctx, key).Result(); there != "foreign" {
			t.a.violate(Violation{
				Kind: Overwritten, Key: keyName(lock), around: span{planted, now()},
				Text: fmt.Sprintf("the list that was put at the key is gone: %q, %v", there, err),
			})
		}
		t.a.holdsThing(key, now())
		return
	}
}

func blackHole(t *trouble, n *node) {
	n.link.Blackhole(true)
	t.sleep(t.between(0, 2*t.a.cfg.maxTTL()))
	n.link.Blackhole(false)
}

func loseMessages(t *trouble, n *node) {
	n.link.messages.Blackhole(true)
	t.sleep(t.between(0, 2*t.a.cfg.maxTTL()))
	n.link.messages.Cut() // what was sent meanwhile is lost, not late
	n.link.messages.Blackhole(false)
}

func refuse(t *trouble, n *node) {
	n.link.Refuse(true)
	t.sleep(t.between(0, t.a.cfg.maxTTL()))
	n.link.Refuse(false)
}

func throttle(t *trouble, n *node) {
	n.link.Throttle(2000 + t.r.IntN(20000))
	t.sleep(t.between(200*time.Millisecond, 1500*time.Millisecond))
	n.link.Throttle(0)
}
