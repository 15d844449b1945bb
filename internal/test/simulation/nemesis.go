package simulation

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/internal/bound"
)

// broken is a lock that was taken away: at key, between two times.
type broken struct {
	key      string
	from, to time.Duration
}

var ops = []conformance.Op{conformance.OpAcquire, conformance.OpRenew, conformance.OpRelease, conformance.OpSetHolds, conformance.OpWatch}

// nemesis makes trouble until ctx is done, or long enough.
func (w *world) nemesis(ctx context.Context) {
	r := newChance(w.seed, -2)
	closes := r.oneIn(4)
	for range 10 + r.IntN(20) {
		if !bound.Sleep(ctx, nil, r.upTo(400*time.Millisecond).Truncate(w.grain)) {
			return
		}
		p := pick(r, w.procs...)
		switch r.IntN(12) {
		case 0, 1, 2, 3, 4:
			w.arm(p, r)
		case 5, 6, 7:
			w.outage(ctx, p, r)
		case 8:
			w.fault(time.Second, "locker %d loses its subscriptions", p.index)
			_ = p.faults.CutNotifications()
		case 9:
			w.forceUnlock(p, pick(r, w.keys...))
		case 10:
			w.lose(pick(r, w.keys...))
		case 11:
			if closes && r.oneIn(3) {
				w.fault(6*time.Second, "locker %d is closed", p.index)
				p.close()
				closes = false
			}
		}
	}
}

// fault notes a fault, whose effects are over after so long.
func (w *world) fault(effect time.Duration, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Faults++
	w.trouble = max(w.trouble, w.now()+effect+w.longestTTL())
	w.note("fault: "+format, args...)
}

func (w *world) longestTTL() (ttl time.Duration) {
	for _, d := range w.ttls {
		ttl = max(ttl, d)
	}
	return ttl
}

// arm lets something happen to the next command of a kind.
func (w *world) arm(p *process, r chance) {
	op := pick(r, ops...)
	late := r.upTo(3 * w.longestTTL()).Truncate(w.grain)
	switch r.IntN(4) {
	case 0:
		w.fault(60*time.Second, "locker %d: the next %s is lost", p.index, op)
		_ = p.faults.LoseCommand(op)
	case 1:
		w.fault(60*time.Second, "locker %d: the reply to the next %s is lost", p.index, op)
		_ = p.faults.LoseReply(op)
	case 2:
		w.fault(60*time.Second, "locker %d: the next %s arrives twice", p.index, op)
		_ = p.faults.Repeat(op)
		p.twice.Store(p.twice.Load() || op == conformance.OpRelease)
	case 3:
		w.fault(60*time.Second, "locker %d: the reply to the next %s is %v late", p.index, op, late)
		_ = p.faults.DelayReply(op, late)
	}
}

// outage lets the store be away, or slow, for a while.
func (w *world) outage(ctx context.Context, p *process, r chance) {
	long := pick(r, r.upTo(100*time.Millisecond), r.upTo(time.Second), r.upTo(3*w.longestTTL())).Truncate(w.grain)
	what, do := "refuses", p.faults.Refuse
	switch r.IntN(3) {
	case 0:
		what, do = "does not answer", p.faults.BlackHole
	case 1:
		what, do = "is slow", func() error { return p.faults.Slow(r.upTo(w.longestTTL() / 2)) }
	}
	w.fault(long+10*time.Second, "for locker %d the store %s for %v", p.index, what, long)
	_ = do()
	bound.Sleep(ctx, nil, long)
	_ = p.faults.Heal()
	w.tell("for locker %d the store is well", p.index)
}

// lose loses the lock at a key, as a store does that forgets.
func (w *world) lose(key string) {
	w.fault(time.Second, "the store loses %s", key)
	defer w.breaking(key)()
	w.store.lose(key)
}

// breaking notes that the lock of key is taken away until the function that it returns is called.
func (w *world) breaking(key string) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.breaks)
	w.breaks = append(w.breaks, broken{key, w.now(), math.MaxInt64})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.breaks[i].to = w.now()
	}
}

// forceUnlock takes the key from its holder as an operator does.
func (w *world) forceUnlock(p *process, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	h, err := p.l.Inspect(ctx, key)
	if err != nil || !h.Held || h.ID == "" {
		return
	}
	w.fault(time.Second, "an operator breaks %s by locker %d", key, p.index)
	defer w.breaking(key)()
	err = p.l.ForceUnlock(ctx, h)
	w.tell("the break of %s: %v", key, errText(err))
}

func errText(err error) string {
	if err == nil {
		return "done"
	}
	return fmt.Sprint(err)
}
