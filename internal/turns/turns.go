// Package turns orders the processes that wait for one key where each release wakes them all.
// Without an order all of them attempt at once, and the one that has just released the key often
// gets it again.
//
// Each process has an age: the number of releases of the key that it has heard since its own last
// one. All hear the same releases, so they agree on the order without a message. A release
// reports how many others heard it, and the process knows by that at which age it will be the oldest. The
// oldest attempts at once. A younger process waits 2 ms for each step that it is younger by, and hears
// meanwhile how others get the key, or gets it if they do not want it. So the order costs no
// command, it saves attempts, and a process that died costs the others 2 ms.
//
// A process that takes no turns would always be first. So for a second after an attempt was refused
// because such a process held the key, this process attempts at once, too.
package turns

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock/locker/internal/wake"
)

const (
	// step is how long a process waits for one that is older: an attempt and its section, if that is
	// short.
	step = 2 * time.Millisecond
	// mostSteps bounds the wait, and stepsUnheard the wait of a process that hears no releases.
	mostSteps, stepsUnheard = 10, 3
	// outOfTurnFor is for how long a holder that takes no turns is remembered.
	outOfTurnFor = time.Second
	// keptFor is how long a key is remembered that is neither watched nor released.
	keptFor = 2 * time.Second
)

// Turns are the turns of a process at the keys for which others wait, too. Its zero value is ready for use.
type Turns struct {
	known atomic.Int32 // how many keys there are: mostly none

	mu    sync.Mutex
	keys  map[string]*turn
	swept time.Time // when those were dropped that are not used any more
}

// turn is a process's turn at a key; Turns' mutex guards it.
type turn struct {
	age    int // releases heard since the last one of this process
	others int // how many heard that release
	absent int // of them, who have not taken their turn
	due    time.Time
	moved  chan struct{} // closed when due changes; nil: nobody waits for that
	// outOfTurn is when an attempt was refused because of a holder that takes no turns.
	outOfTurn time.Time
	used      time.Time
	watch     *Watch // nil: the process hears no releases
}

// Watch hears the releases of a key. Its C receives when it is the process's turn.
type Watch struct {
	wake.Signal
	t     *Turns
	key   string
	timer *time.Timer // fires when the turn has come
	ended bool
}

// at returns the turn at key, and makes it if need be.
func (t *Turns) at(key string, now time.Time) *turn {
	k := t.keys[key]
	if k == nil {
		if t.keys == nil {
			t.keys = make(map[string]*turn)
		}
		k = new(turn)
		t.keys[key] = k
		t.known.Store(int32(len(t.keys)))
	}
	k.used = now
	return k
}

// sweep drops the keys that are not used any more, if that was not done of late.
func (t *Turns) sweep(now time.Time) {
	if now.Sub(t.swept) < keptFor {
		return
	}
	t.swept = now
	for name, k := range t.keys {
		if k.watch == nil && now.Sub(k.used) >= keptFor {
			t.drop(name)
		}
	}
}

// drop forgets what is known of a key.
func (t *Turns) drop(key string) {
	if k := t.keys[key]; k != nil && k.moved != nil {
		close(k.moved)
	}
	delete(t.keys, key)
	t.known.Store(int32(len(t.keys)))
}

// set sets when the turn comes, by what is known.
func (k *turn) set(now time.Time) {
	most := mostSteps
	if k.watch == nil {
		most = stepsUnheard
	}
	younger := min(k.others-k.absent-max(k.age, 0), most)
	if now.Sub(k.outOfTurn) < outOfTurnFor {
		younger = 0
	}
	k.due = now.Add(time.Duration(max(younger, 0)) * step)
	if k.moved != nil {
		close(k.moved)
		k.moved = nil
	}
}

// Await returns when it is the process's turn to attempt, or ctx has ended, whose error it
// returns.
func (t *Turns) Await(ctx context.Context, key string) error {
	for t.known.Load() > 0 {
		left, moved := t.left(key)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-moved:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// left returns how long it is until the turn at key, and a channel that is closed when that
// changes.
func (t *Turns) left(key string) (time.Duration, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keys[key]
	if k == nil {
		return 0, nil
	}
	left := time.Until(k.due)
	if left > 0 && k.moved == nil {
		k.moved = make(chan struct{})
	}
	return left, k.moved
}

// Granted notes that the process's attempt, for which it had awaited its turn, was granted. Those
// before it have not taken theirs.
func (t *Turns) Granted(key string) {
	if t.known.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.keys[key]; k != nil && time.Since(k.outOfTurn) >= outOfTurnFor {
		k.absent = max(k.absent, k.others-max(k.age, 0))
	}
}

// Refused notes that the process's attempt was refused, because of a holder that takes
// turns, or takes none. A holder that takes turns was older.
func (t *Turns) Refused(key string, takesTurns bool) {
	if t.known.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch k := t.keys[key]; {
	case k == nil:
	case !takesTurns:
		k.outOfTurn = time.Now()
	default:
		k.absent = max(k.absent-1, 0)
	}
}

// Releasing notes that the process sends a release. A Watch hears it, too.
func (t *Turns) Releasing(key string) {
	if t.known.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.keys[key]; k != nil {
		k.age = 0
		if k.watch != nil {
			k.age = -1
		}
	}
}

// Released notes that a release of the process was heard by so many, itself included.
func (t *Turns) Released(key string, listeners int) {
	if listeners == 0 && t.known.Load() == 0 {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	k := t.keys[key]
	if listeners == 0 && (k == nil || k.watch == nil) {
		t.drop(key)
		return
	}
	k = t.at(key, now)
	if k.watch != nil {
		listeners--
	}
	if listeners = max(listeners, 0); listeners != k.others {
		k.others, k.absent = listeners, 0
	}
	k.set(now)
}

// Watch makes a Watch of key. There is one at a time for each key.
func (t *Turns) Watch(key string) *Watch {
	w := &Watch{Signal: wake.New(), t: t, key: key}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	w.timer = time.AfterFunc(time.Hour, w.come)
	w.timer.Stop()
	t.at(key, now).watch = w
	return w
}

// Heard notes a release, or that releases may have been missed.
func (w *Watch) Heard(missed bool) {
	now := time.Now()
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	k := w.t.keys[w.key]
	switch {
	case w.ended || k == nil || k.watch != w:
	case missed:
		w.Send()
	default:
		k.age++
		if k.set(now); k.due.After(now) {
			w.timer.Reset(k.due.Sub(now))
		} else {
			w.timer.Stop()
			w.Send()
		}
	}
}

// come wakes the waiter.
func (w *Watch) come() {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	if !w.ended {
		w.Send()
	}
}

// End closes C: no release is heard any more.
func (w *Watch) End() { w.end(true) }

// Close drops the Watch.
func (w *Watch) Close() { w.end(false) }

func (w *Watch) end(report bool) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.timer.Stop()
	if k := w.t.keys[w.key]; k != nil && k.watch == w {
		w.t.drop(w.key)
	}
	if report && !w.ended {
		close(w.Signal)
	}
	w.ended = true
}
