package conformance

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	paceStep = 5 * time.Millisecond
	paceHops = 4
	// maxSlowdown is how much slower than real time a pacer's clock gets at most.
	maxSlowdown = 8
)

// pacer is a clock that runs as slowly as the machine does. Each of its steps is a
// short sleep and some passes through the scheduler; however long that takes, the
// clock has moved on by the sleep alone. Upper bounds are counted on this clock: on
// an idle machine it is as good as real time, and on a busy one a bound lasts
// longer in the same measure in which goroutines run late. What must not happen
// early is measured in real time.
type pacer struct {
	mu     sync.Mutex
	users  int
	end    chan struct{}
	paced  time.Duration
	at     time.Time // of the last step
	factor float64   // how long a step takes of late, in steps
}

// pace is the process's.
var pace pacer

// start keeps the clock running until stop is called as often.
func (p *pacer) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users++; p.users == 1 {
		p.at, p.end = time.Now(), make(chan struct{})
		go p.run(p.end)
	}
}

func (p *pacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		close(p.end)
	}
}

func (p *pacer) run(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(paceStep):
		}
		for range paceHops {
			runtime.Gosched()
		}
		p.step()
	}
}

func (p *pacer) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	took := now.Sub(p.at)
	p.paced += min(max(paceStep, took/maxSlowdown), took)
	p.at = now
	p.factor += (float64(took)/float64(paceStep) - p.factor) / 50
}

// now is the time on the clock.
func (p *pacer) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paced + min(time.Since(p.at), paceStep)
}

// factorOfLate is how long a step took of late, in steps.
func (p *pacer) factorOfLate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.factor
}

// slowdown is by how much leases have to be longer for the machine of late: 1 up to
// steps that take three times as long as they should, and at most 3.
func (p *pacer) slowdown() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(p.factor/3, 1), 3)
}

// after calls f when d has passed on the clock, unless stop is called before.
func (p *pacer) after(d time.Duration, f func()) (stop func()) {
	end := p.now() + d
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	check := func() {
		mu.Lock()
		left := end - p.now()
		if over || left > 0 {
			if !over {
				timer.Reset(left)
			}
			mu.Unlock()
			return
		}
		over = true
		mu.Unlock()
		f()
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(d, check)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// Moment is a point in time, on the clock on the wall and on the suite's own, which
// slows down with the machine.
type Moment struct {
	Time  time.Time
	paced time.Duration
}

// Now is the present moment.
func Now() Moment { return Moment{time.Now(), pace.now()} }

// Took is how long ago m was, less what the machine's slowness accounts for. It is
// for upper bounds; for lower bounds there is time.Since(m.Time).
func (m Moment) Took() time.Duration { return Now().Since(m) }

// Since is how long after earlier m was, on the suite's clock.
func (m Moment) Since(earlier Moment) time.Duration { return m.paced - earlier.paced }

// Eventually looks until cond holds, at most for d on the suite's clock. It polls: what
// cond looks at tells of no event. It is for tests beside the suite.
func Eventually(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	pace.start()
	defer pace.stop()
	for start := Now(); !cond(); time.Sleep(2 * time.Millisecond) {
		if start.Took() > d {
			tb.Fatalf("%s: not within %v", what, d)
		}
	}
}

// Bounded is a child of ctx that is cancelled when d has passed on the suite's
// clock.
func (t *T) Bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := pace.after(d, cancel)
	return ctx, func() { stop(); cancel() }
}

// forMachine lengthens the leases that must not be lost while the machine is slow.
func (tm Timing) forMachine(slowdown float64) Timing {
	for _, d := range []*time.Duration{&tm.TTL, &tm.ShortTTL, &tm.MinTTL} {
		*d = time.Duration(float64(*d) * slowdown).Round(10 * time.Millisecond)
	}
	return tm
}
