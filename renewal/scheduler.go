package renewal

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Never is a time that does not come.
const Never time.Duration = math.MaxInt64

const (
	// early is the part of its interval, one in so many, by which a renewal may
	// come early to share a round trip.
	early = 8

	defaultMaxBatch = 256
)

// Config configures a [Scheduler]. Its functions are called outside all
// locks of the Scheduler and may call its methods.
type Config[T any] struct {
	// Ended gets the items whose end has come. It must not block: it delays
	// the ends of others. Required.
	Ended func(items []T)
	// Renew renews a batch, all of one shard, in a goroutine of its own. ctx ends
	// with Close. Required.
	Renew func(ctx context.Context, items []T)
	// MaxBatch is how many items Renew gets at most. Default 256.
	MaxBatch int
	// Shard names the shard of an item. Items of different shards share no batch.
	// Default: all are of one.
	Shard func(item T) string
}

// Entry is one item's place in a [Scheduler]. Embed it in a struct of your own,
// set its fields before the first Set, and do not copy it.
type Entry[T any] struct {
	Item     T
	Interval time.Duration // between renewals: bounds how early one may come

	places [2]int32 // in Scheduler.queues
}

// Scheduler fires the times of its entries. Make one with [New]. Its methods may
// be called from many goroutines.
type Scheduler[T any] struct {
	cfg    Config[T]
	base   time.Time // the clock's zero
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed once nothing runs any more

	mu      sync.Mutex
	queues  [2]queue[T]
	timer   *time.Timer
	armed   time.Duration  // what timer is set to; at or before the first time
	running sync.WaitGroup // ticks and batches
	closed  bool
}

// New makes a Scheduler. It panics if a required function is missing.
func New[T any](cfg Config[T]) *Scheduler[T] {
	if cfg.Ended == nil || cfg.Renew == nil {
		panic("renewal: Config needs Ended and Renew")
	}
	if cfg.Shard == nil {
		cfg.Shard = func(T) string { return "" }
	}
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = defaultMaxBatch
	}
	s := &Scheduler[T]{cfg: cfg, base: time.Now(), done: make(chan struct{}), armed: Never}
	s.queues[renewals].kind = renewals
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Now returns the time on the Scheduler's clock.
func (s *Scheduler[T]) Now() time.Duration { return time.Since(s.base) }

// Time returns the wall-clock time of at.
func (s *Scheduler[T]) Time(at time.Duration) time.Time {
	// Not base.Add: the wall clock may have been set since.
	now := time.Now()
	return now.Add(at - now.Sub(s.base))
}

// Set sets when e ends and when it is renewed next; Never for not at all. It does
// nothing after Close.
func (s *Scheduler[T]) Set(e *Entry[T], end, renewal time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if grain := e.Interval / early; grain > 0 && renewal != Never {
		// Rounded down, so that entries of one interval are due together. A renewal that
		// would be due at once by that, such as another try after a failure, stays.
		if at := renewal - renewal%grain; at > s.Now() {
			renewal = at
		}
	}
	s.queues[ends].set(e, end)
	s.queues[renewals].set(e, renewal)
	s.arm()
}

// Remove takes e out. A call of Ended or Renew that is on its way may still come.
// It does nothing after Close.
func (s *Scheduler[T]) Remove(e *Entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.queues[ends].set(e, Never)
	s.queues[renewals].set(e, Never)
	if len(s.queues[ends].slots)+len(s.queues[renewals].slots) == 0 && s.armed != Never {
		s.timer.Stop()
		s.armed = Never
	}
}

// arm sets the timer to fire no later than the first time. It needs s.mu.
func (s *Scheduler[T]) arm() {
	at := min(s.queues[ends].min(), s.queues[renewals].min())
	if at >= s.armed {
		return // firing too early costs one tick; setting the timer for each Remove costs more
	}
	s.armed = at
	d := max(0, at-s.Now())
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.tick)
	} else {
		s.timer.Reset(d)
	}
}

// tick fires the ends and renewals that are due. The timer calls it.
func (s *Scheduler[T]) tick() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.armed = Never
	now := s.Now()
	var over, due []T
	for s.queues[ends].min() <= now {
		e := s.queues[ends].pop()
		s.queues[renewals].set(e, Never)
		over = append(over, e.Item)
	}
	for s.queues[renewals].min() <= now {
		due = append(due, s.queues[renewals].pop().Item)
	}
	s.running.Add(1)
	s.arm()
	s.mu.Unlock()

	defer s.running.Done()
	s.renew(due)
	if len(over) > 0 {
		s.cfg.Ended(over)
	}
}

// renew starts the renewals of items, in batches.
func (s *Scheduler[T]) renew(items []T) {
	shards := make(map[string][]T)
	for _, item := range items {
		shard := s.cfg.Shard(item)
		shards[shard] = append(shards[shard], item)
	}
	for _, items := range shards {
		for batch := range slices.Chunk(items, s.cfg.MaxBatch) {
			s.running.Go(func() { s.cfg.Renew(s.ctx, batch) })
		}
	}
}

// Close ends all: no time fires any more, and the contexts of the batches under
// way are cancelled; see [Scheduler.Done] for their end. After the first call
// Close does nothing.
func (s *Scheduler[T]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.queues = [2]queue[T]{}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.cancel()
	go func() {
		s.running.Wait()
		close(s.done)
	}()
}

// Done returns a channel that is closed when the Scheduler is closed and nothing
// of it runs any more.
func (s *Scheduler[T]) Done() <-chan struct{} { return s.done }
