package retry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock/locker/internal/bound"
	"github.com/distlock/locker/internal/idle"
	"github.com/distlock/locker/internal/wake"
)

// Times and bounds of a Queue.
const (
	RepeatAfter = time.Second            // the pause before a task that returned ErrRepeat runs once more
	AtOnce      = 64                     // how many tasks of a shard run at once, beside late ones
	LateAfter   = 300 * time.Millisecond // a task that runs for longer holds up no other
	PauseMin    = 20 * time.Millisecond
	PauseMax    = time.Second
)

// ErrRepeat is returned by a task that is to run again after RepeatAfter. It is no failure for the
// back-off. If the task's time is over before that, the task ends without Fails.
var ErrRepeat = errors.New("to be repeated")

// Task is a command that goes on in the background.
type Task struct {
	ID    string        // a task is dropped if one with its ID waits in its shard
	Until time.Duration // on the clock of the Queue: it is not tried from then on
	// Run tries once. nil ends the task, ErrRepeat asks for another try, and any other error that is
	// not Permanent is tried again.
	Run func(ctx context.Context) error
	// Fails is called when the task is given up, with the error of the last try; nil: there was none.
	Fails func(err error)

	due time.Duration
	err error
}

// Config is what a Queue is made of. All fields are required.
type Config struct {
	Now       func() time.Duration
	Closing   <-chan struct{}  // once it is closed, waiting tasks are due
	Timeout   time.Duration    // of one try
	Permanent func(error) bool // to try again is pointless
	Panicked  func(v any) error
}

// Queue runs tasks until they succeed. The tasks of one shard, a place that fails as a whole,
// share one back-off: a shard in trouble is tried by one task after the other, however many
// there are. A task without an answer holds up the others for no longer than LateAfter. A
// shard has a goroutine while it has tasks.
type Queue struct {
	cfg  Config
	life context.Context
	stop context.CancelFunc

	mu     sync.Mutex
	shards map[string]*shard
	busy   idle.Count // of shards
}

type shard struct {
	waiting map[string]*Task
	running int
	width   int  // how many are begun at a time: one after a failure, one more after each success
	failed  bool // a task has failed since the last pause
	wake    wake.Signal
}

// NewQueue makes a Queue.
func NewQueue(cfg Config) *Queue {
	q := &Queue{cfg: cfg, shards: make(map[string]*shard)}
	q.life, q.stop = context.WithCancel(context.Background())
	return q
}

// Add runs t in the background. It reports false after Stop, and t is not run.
func (q *Queue) Add(name string, t *Task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil {
		return false
	}
	s := q.shards[name]
	if s == nil {
		s = &shard{waiting: make(map[string]*Task), width: 1, wake: wake.New()}
		q.shards[name] = s
		q.busy.Add(1)
		go q.work(name, s)
	}
	s.add(t)
	s.wake.Send()
	return true
}

// Len returns how many tasks wait or run.
func (q *Queue) Len() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.shards {
		n += s.running + len(s.waiting)
	}
	return n
}

// Stop ends the contexts of running tasks, and gives up all tasks.
func (q *Queue) Stop() { q.stop() }

// Done returns a channel that is closed when there are no tasks.
func (q *Queue) Done() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy.Done()
}

// add needs q.mu.
func (s *shard) add(t *Task) {
	if s.waiting[t.ID] == nil {
		s.waiting[t.ID] = t
	}
}

// work runs the tasks of a shard while there are some.
func (q *Queue) work(name string, s *shard) {
	var pause Backoff
	for {
		batch, wait, over := q.take(name, s)
		switch {
		case len(batch) > 0:
			if q.runBatch(s, batch) {
				pause = Backoff{}
			} else {
				bound.Sleep(q.life, nil, pause.Next(PauseMin, PauseMax))
			}
			continue
		case over:
			return
		}
		timer, closing := time.NewTimer(wait), q.cfg.Closing
		if wait == never {
			closing = nil // no task waits: those that run wake this goroutine
		}
		select {
		case <-timer.C:
		case <-s.wake:
		case <-closing:
		}
		timer.Stop()
	}
}

const never time.Duration = 1<<63 - 1

// take takes some tasks that are due, and all whose time is over. If there is none, it returns
// how long it is until the first is due; a shard without tasks is over, and forgotten.
func (q *Queue) take(name string, s *shard) (batch []*Task, wait time.Duration, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, wait, n := q.cfg.Now(), never, max(min(s.width, AtOnce-s.running), 1)
	for id, t := range s.waiting {
		if now >= t.Until || len(batch) < n && (t.due <= now || q.isClosing()) {
			batch = append(batch, t)
			delete(s.waiting, id)
			continue
		}
		wait = min(wait, t.due-now)
	}
	s.running += len(batch)
	if over = s.running+len(s.waiting) == 0; over {
		delete(q.shards, name)
		q.busy.Add(-1)
	}
	return batch, wait, over
}

func (q *Queue) isClosing() bool {
	select {
	case <-q.cfg.Closing:
		return true
	default:
		return false
	}
}

// runBatch does not wait for tasks that are late. It reports whether none has failed, of this
// batch or of those that were late before.
func (q *Queue) runBatch(s *shard, batch []*Task) (well bool) {
	ended := make(chan struct{}, len(batch))
	for _, t := range batch {
		go func() {
			q.ended(s, q.run(s, t))
			ended <- struct{}{}
		}()
	}
	late := time.NewTimer(LateAfter)
	defer late.Stop()
	for range batch {
		select {
		case <-ended:
			continue
		case <-late.C:
		}
		break
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	well, s.failed = !s.failed, false
	return well
}

// run tries a task once, unless its time is over. It reports false if the try is a failure for
// the shard's back-off.
func (q *Queue) run(s *shard, t *Task) bool {
	if q.cfg.Now() < t.Until {
		if t.err = q.try(t); t.err == nil {
			return true
		}
	}
	repeat, over := errors.Is(t.err, ErrRepeat), q.cfg.Now() >= t.Until
	switch {
	case repeat && over:
		return true
	case repeat:
		t.due = q.cfg.Now() + RepeatAfter
	case over || q.life.Err() != nil || q.cfg.Permanent(t.err):
		t.Fails(t.err)
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.add(t)
	return repeat
}

// try recovers a panic: no caller is there who could.
func (q *Queue) try(t *Task) (err error) {
	ctx, cancel := context.WithTimeout(q.life, q.cfg.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = q.cfg.Panicked(v)
		}
	}()
	return t.Run(ctx)
}

// ended notes that a task does not run any more. If it is to run again, it waits by now.
func (q *Queue) ended(s *shard, well bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.running--
	if well {
		s.width = min(s.width+1, AtOnce)
	} else {
		s.width, s.failed = 1, true
	}
	s.wake.Send()
}
