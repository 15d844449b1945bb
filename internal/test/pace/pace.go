// Package pace is a clock that runs as slowly as the machine does, for upper bounds in tests.
//
// Each step of the clock is a short sleep and some passes through the scheduler; however long
// that takes, the clock has moved on by the sleep alone. On an idle machine it is as good as
// real time, and on a busy one a bound lasts longer in the same measure in which goroutines
// run late. What must not happen early is measured in real time.
package pace

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	step = 5 * time.Millisecond
	hops = 4
	// MaxSlowdown is how much slower than real time the clock gets at most.
	MaxSlowdown = 8
)

// clock is the process's.
var clock struct {
	mu     sync.Mutex
	users  int
	end    chan struct{}
	paced  time.Duration
	at     time.Time // of the last step
	factor float64   // how long a step takes of late, in steps
}

// Keep keeps the clock running until release is called.
func Keep() (release func()) {
	clock.mu.Lock()
	defer clock.mu.Unlock()
	if clock.users++; clock.users == 1 {
		clock.at, clock.end = time.Now(), make(chan struct{})
		go run(clock.end)
	}
	return func() {
		clock.mu.Lock()
		defer clock.mu.Unlock()
		if clock.users--; clock.users == 0 {
			close(clock.end)
		}
	}
}

func run(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(step):
		}
		for range hops {
			runtime.Gosched()
		}
		tick()
	}
}

func tick() {
	clock.mu.Lock()
	defer clock.mu.Unlock()
	now := time.Now()
	took := now.Sub(clock.at)
	clock.paced += min(max(step, took/MaxSlowdown), took)
	clock.at = now
	clock.factor += (float64(took)/float64(step) - clock.factor) / 50
}

// now returns the time on the clock.
func now() time.Duration {
	clock.mu.Lock()
	defer clock.mu.Unlock()
	return clock.paced + min(time.Since(clock.at), step)
}

// Factor returns how long a step took of late, in steps: 1 on an idle machine.
func Factor() float64 {
	clock.mu.Lock()
	defer clock.mu.Unlock()
	return clock.factor
}

// After calls f when d has passed on the clock, unless stop is called before.
func After(d time.Duration, f func()) (stop func()) {
	end := now() + d
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	check := func() {
		mu.Lock()
		left := end - now()
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

// Timeout returns a channel that is closed when d has passed on the clock, unless stop is
// called before.
func Timeout(d time.Duration) (late <-chan struct{}, stop func()) {
	c := make(chan struct{})
	return c, After(d, func() { close(c) })
}

// Moment is a point in time, in real time and on the clock.
type Moment struct {
	Time  time.Time
	paced time.Duration
}

// Now returns the present moment.
func Now() Moment { return Moment{time.Now(), now()} }

// Took returns how long ago m was, less what the machine's slowness accounts for. It is
// for upper bounds; for lower bounds there is time.Since(m.Time).
func (m Moment) Took() time.Duration { return Now().Since(m) }

// Since returns how long after earlier m was, on the clock.
func (m Moment) Since(earlier Moment) time.Duration { return m.paced - earlier.paced }

// Eventually waits until cond holds, and fails tb when d has passed on the clock. It polls,
// for conditions that no event announces.
func Eventually(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	defer Keep()()
	for start := Now(); !cond(); time.Sleep(5 * time.Millisecond) {
		if start.Took() > d {
			tb.Fatalf("%s: not within %v", what, d)
		}
	}
}
