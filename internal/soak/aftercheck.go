package soak

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// wantNobodyWaiting: two seconds after the last release no connection is blocked or
// subscribed.
func (a *arena) wantNobodyWaiting() {
	wrong := eventually(2*time.Second+a.cfg.Slack, func() string {
		var left []string
		for _, n := range a.nodes {
			list, err := n.admin.ClientList(context.Background()).Result()
			if err != nil {
				return err.Error()
			}
			for line := range strings.Lines(list) {
				_, flags, _ := strings.Cut(line, " flags=")
				flags, _, _ = strings.Cut(flags, " ")
				if strings.ContainsAny(flags, "bP") {
					left = append(left, n.name+": "+line)
				}
			}
		}
		return strings.Join(left, "")
	})
	if wrong != "" {
		a.violate(Violation{Kind: LeakedConnection, Text: "after the last release there are connections that wait:\n" + wrong})
	}
}

// stored are the keys that are at a node, and how long they will be.
func (n *node) stored(ctx context.Context) (map[string]time.Duration, error) {
	all := make(map[string]time.Duration)
	keys := n.admin.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		ttl, err := n.admin.PTTL(ctx, keys.Val()).Result()
		if err != nil {
			return nil, err
		}
		if ttl != -2 {
			all[keys.Val()] = ttl
		}
	}
	return all, keys.Err()
}

// keysPatience is how long after the last release signals may stay.
const keysPatience = 10 * time.Second

// wantNoKeys: no lock is left, and what else is left expires and is little: for each
// key no more than something that tokens are made of, and something for each process.
func (a *arena) wantNoKeys() {
	wrong := eventually(a.cfg.maxTTL()+keysPatience+a.cfg.Slack, func() string {
		var left []string
		for _, n := range a.nodes {
			keys, err := n.stored(context.Background())
			if err != nil {
				return err.Error()
			}
			for key, ttl := range keys {
				if _, lock := a.locks[key]; lock || ttl < 0 {
					left = append(left, fmt.Sprintf("%s: %.40q, TTL %v", n.name, key, ttl))
				}
			}
			if most := a.cfg.Keys + a.cfg.Processes; len(left) == 0 && len(keys) > most {
				left = append(left, fmt.Sprintf("%s: %d, at most %d are for tokens and processes", n.name, len(keys), most))
			}
		}
		return strings.Join(left, "\n")
	})
	if wrong != "" {
		a.violate(Violation{Kind: LeakedKey, Text: "after the last release there are keys:\n" + wrong})
	}
}

// watchTTLs wants no lock to be kept for longer than its lease may last, or a grant that
// waits to be taken.
func (a *arena) watchTTLs(ctx context.Context) {
	const grant, allowed = time.Second, 500 * time.Millisecond
	most := max(a.cfg.maxTTL(), grant) + allowed
	for ctx.Err() == nil {
		for _, n := range a.nodes {
			began := now()
			keys, _ := n.stored(ctx) // without those of a server that is down
			a.mu.Lock()
			for key, ttl := range keys {
				if lock, is := a.locks[key]; is && a.things[key] < began && (ttl < 0 || ttl > most) {
					a.overlong(lock, ttl)
				}
			}
			a.mu.Unlock()
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// overlong notes a TTL, once. a.mu is held.
func (a *arena) overlong(key uint16, ttl time.Duration) {
	for _, v := range a.violations {
		if v.Kind == Overlong {
			return
		}
	}
	t := now()
	a.violations = append(a.violations, Violation{
		Kind: Overlong, Key: keyName(key), around: span{t, t},
		Text: fmt.Sprintf("the lock is kept for %v, and the longest lease lasts %v", ttl, a.cfg.maxTTL()),
	})
}

// wantNoGrowth has the first process use many keys, which are to cost nothing for good.
func (a *arena) wantNoGrowth() {
	p := a.workers[0]
	p.tell(sayGrow)
	line, err := p.hear(sayGrown, growWithin+3*leakPatience+a.cfg.Slack+10*time.Second)
	if err != nil {
		a.stuck(p, err)
		return
	}
	var bytes, goroutines int
	if _, err := fmt.Sscanf(line, sayGrown+" %d %d", &bytes, &goroutines); err != nil {
		a.stage.Error(err)
	}
	if bytes > 0 {
		a.violate(Violation{Kind: LeakedMemory, Text: fmt.Sprintf("%s: keys used once have cost %d bytes", p.name, bytes)})
	}
	if goroutines > 0 {
		a.violate(Violation{Kind: LeakedGoroutine, Text: fmt.Sprintf("%s: keys used once have cost %d goroutines", p.name, goroutines)})
	}
}

const (
	closeWithin  = 5 * time.Second // is what Close promises
	closeGivesUp = 4 * time.Second // is how long it waits before it reports an error
)

// close closes the Lockers.
func (a *arena) close() {
	for _, p := range a.workers {
		p.tell(sayClose)
	}
	for _, p := range a.workers {
		line, err := p.hear(sayClosed, closeWithin+leakPatience+a.cfg.Slack+10*time.Second)
		if err != nil {
			a.stuck(p, err)
			continue
		}
		p.reap()
		if why := p.crashed(); why != "" {
			a.violate(Violation{Kind: Crash, Text: p.name + " ended: " + why})
		}
		var took, left int
		if _, err := fmt.Sscanf(line, sayClosed+" %d %d", &took, &left); err != nil {
			a.stage.Error(err)
		}
		if d := time.Duration(took) * time.Millisecond; d > closeWithin+a.cfg.Slack {
			a.violate(Violation{Kind: Slow, Text: fmt.Sprintf("%s: Close took %v", p.name, d)})
		}
		if left > 0 {
			a.violate(Violation{Kind: LeakedGoroutine, Text: fmt.Sprintf("%s: after Close %d goroutines run:\n%s", p.name, left, p.stderr())})
		}
	}
}
