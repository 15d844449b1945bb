package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Why a claim was lost, as told to Config.Lost. Any other cause is an error
// that Config.Final called final, or the one given to [Scheduler.Fail].
var (
	// ErrExpired: the deadline passed before a renewal went through.
	ErrExpired = errors.New("renewal: not renewed before the deadline")
	// ErrMaxRenewals: Terms.MaxRenewals were made and one more was due.
	ErrMaxRenewals = errors.New("renewal: renewals used up")
	// ErrMaxHold: Terms.Limit was reached.
	ErrMaxHold = errors.New("renewal: time limit reached")
)

// ErrUnanswered is what Config.Failed is told when Config.Renew returned
// without a word on an item.
var ErrUnanswered = errors.New("renewal: no answer")

// PanicError is what Config.Failed is told of the items that were unanswered
// when Config.Renew panicked.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // where
}

func (e *PanicError) Error() string { return fmt.Sprintf("renewal: Renew panicked: %v", e.Value) }

// Func renews a batch, all of one shard. It calls answer at most once for each
// index, as the answers arrive, from any goroutine; an index without an answer
// by the time it returns counts as failed with [ErrUnanswered], and answers that
// come later are ignored. It must return soon after ctx is done: until then
// its unanswered items are not tried again.
//
// The time a renewal was sent, from which its item's new deadline is reckoned,
// is taken before Func is called.
type Func[T any] func(ctx context.Context, shard string, batch []T, answer func(i int, err error))

// Config is what a [Scheduler] is made of. Its functions are called from many
// goroutines, outside all locks of the Scheduler, and may call its methods
// (Wait excepted). They must not block, Renew excepted: a slow one delays
// other calls of its kind, though no renewal of another batch. A panic is
// recovered only in Renew, and so in a callback that runs within its answer.
type Config[T any] struct {
	// Renew renews a batch. Required.
	Renew Func[T]
	// Final reports whether an error means that the claim is gone. Other
	// errors are tried again until the deadline. Required.
	Final func(error) bool
	// Lost is called exactly once for an item that is kept no longer, unless
	// [Scheduler.Stop] or [Scheduler.Close] ended it. Required.
	Lost func(item T, cause error)
	// Renewed is called after each successful renewal. Optional. It may still
	// run while Stop returns.
	Renewed func(item T, took time.Duration)
	// Failed is called after each failed renewal that will be tried again.
	// Optional. It may still run while Stop returns.
	Failed func(item T, err error, took time.Duration)
	// MaxBatch is how many items Renew is given at most. Default 256.
	MaxBatch int
}

// Terms are those of one claim. Times should carry the monotonic reading of
// time.Now.
type Terms struct {
	Shard       string        // claims of different shards share no batch
	Interval    time.Duration // between renewals; 0: never renewed, only watched
	Validity    time.Duration // a renewal sent at t makes the claim last until t+Validity
	Deadline    time.Time     // until when it lasts without any renewal
	Limit       time.Time     // when it is lost whatever the renewals; zero: never
	MaxRenewals int           // when one more is due, the claim is lost; 0: no limit
}

// Entry is one claim's place in a [Scheduler]. The zero Entry is ready for
// [Scheduler.Add]; embed it in a struct of your own. It must not be copied, and
// not be added a second time, whatever became of it.
type Entry[T any] struct {
	// Times are nanoseconds on the Scheduler's clock. What is atomic is
	// written under Scheduler.mu and may be read without it, the rest is
	// guarded by it.
	end      atomic.Int64 // when it is lost if nothing happens; noEnd, lostEnd; 0: never added
	deadline atomic.Int64 // 0: never added

	item     T
	why      error     // the cause, once lost
	group    *group[T] // nil if never renewed
	interval int64
	validity int64
	limit    int64
	next     int64    // when the next renewal is due
	max      int32    // renewals allowed; 0: any number
	renewals int32    // made
	places   [2]int32 // in Scheduler.ends, in group.queue
	state    state
}

type state uint8

const (
	fresh   state = iota
	kept          // between Add and its end
	stopped       // ended without Lost
	lost          // ended with Lost
)
