package locker

import (
	"context"
	"log/slog"
	"time"
)

// Driver is what a strategy implements: single, atomic commands against one
// store. Waiting, queueing, re-entry, renewal, deadlines, loss, clean-up and
// events are the Locker's, written once for all drivers; [New] makes a Locker of
// a driver. The conformance package tests the two together.
//
// Every command may be applied and its reply lost, or reach the store twice; a
// driver's commands are safe under both because they name a [Claim], and a claim
// id is never used for another grant. A driver does not retry by itself: the
// Locker does, and it knows when not to. Its methods are called from many
// goroutines, and return soon after ctx is done (a few seconds at most).
//
// Errors: what a driver returns is taken for transient trouble of unknown
// outcome unless it says otherwise by matching [ErrLost] (Renew, Release,
// SetHolds: the claim does not hold the key), [ErrConflict], [ErrInvalid], or by
// being a [*StoreError].
type Driver interface {
	// Name is the strategy's name in errors, events and configuration.
	Name() string

	// Acquire makes one attempt to grant req.Key to req.ID for req.TTL,
	// counted by the store from its arrival. An attempt that is repeated with
	// an id that holds the key already is granted again, with the same token.
	Acquire(ctx context.Context, req Request) (Answer, error)

	// Renew makes each claim last its TTL from now, if it still holds its key,
	// never less than it has left. It calls answer exactly once for each index
	// before it returns, as early as it knows: nil for renewed, an error that
	// matches ErrLost if the claim does not hold the key. All claims are of
	// one shard.
	Renew(ctx context.Context, claims []Claim, answer func(i int, err error))

	// Release frees the key if c holds it; otherwise it touches nothing and
	// returns an error that matches ErrLost. It must work after Close.
	Release(ctx context.Context, c Claim) error

	// Close ends what the driver started. It is called once.
	Close() error
}

// Claim is a process's hold of a key in the store.
type Claim struct {
	Key   string        // the name in the store, prefix included
	ID    string        // names this grant; never used for another one
	Owner string        // who holds: ID itself unless the caller named an owner
	Token int64         // the fencing token, once granted
	TTL   time.Duration // a whole number of milliseconds
}

// Request is one attempt to acquire.
type Request struct {
	Claim
	Fencing bool // issue a token
	// Wait says that the Locker has a Watch on the key and will wait if refused:
	// the driver may keep a place in a queue for it, until the grant or until
	// the Watch is closed.
	Wait bool
}

// Answer is the store's word on a Request.
type Answer struct {
	Granted bool
	Token   int64 // if granted with fencing

	// If not granted:
	Left   time.Duration // what is left of the holder's lease; negative if unknown or endless
	Silent bool          // this holder's release sends no signal to this driver's Watch: poll
}

// StoreError refines an error of a driver.
type StoreError struct {
	Err error
	// Permanent trouble needs a person (no permission, out of memory, wrong
	// password): Lock does not ride it out.
	Permanent bool
	// NotApplied says that the command certainly did not take effect, so that
	// there is nothing to clean up.
	NotApplied bool
}

func (e *StoreError) Error() string { return e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// Configurer is implemented by a driver that has options of its own or wants to
// know the Locker's. [New] calls Configure once, before any command. The driver
// refuses an element of Options it does not know with ErrInvalid; one that is no
// Configurer takes none.
type Configurer interface {
	Configure(DriverConfig) error
}

// DriverConfig is what a Locker tells its driver.
type DriverConfig struct {
	LockerID string       // a random UUID; claim ids start with it
	Logger   *slog.Logger // never nil
	Options  []any        // given by WithDriverOption, in order
}

// Notifier is implemented by a driver whose store tells of releases. Without it
// waiters poll every 10 to 100 ms.
type Notifier interface {
	// Watch returns once releases of key are certain to be signalled; a
	// release that comes before may be missed, so the Locker tries once more
	// after it. The Locker keeps one Watch per key, however many wait.
	Watch(ctx context.Context, key string) (Watch, error)
}

// Watch is a subscription to the releases of one key.
type Watch interface {
	// C receives when the key may be free. It may miss signals (the Locker
	// looks about once a second anyway) and make up some. It holds one. It is
	// closed when the Watch can signal no more; the Locker closes that then
	// and asks for another one.
	C() <-chan struct{}
	// Close ends the subscription and gives up the place kept for it, if any,
	// passing on what was granted to it. It returns within tens of milliseconds.
	Close()
}

// HoldCounter is implemented by a driver that keeps re-entrant hold counts in
// the store, where other processes see them.
type HoldCounter interface {
	// SetHolds sets the holds of claim c to n, 1 or more; not by n. It leaves
	// the lease as it is. It returns an error that matches ErrLost if c does
	// not hold the key.
	SetHolds(ctx context.Context, c Claim, n int) error
}

// Sharder is implemented by a driver whose keys live in places that fail apart
// (nodes of a cluster): claims of different shards are never renewed in one
// batch.
type Sharder interface {
	Shard(key string) string
}

// Branded is implemented by a driver that wants to know its own claims by sight
// in a store where other strategies lock, too: Brand is the version digit of the
// UUID that claim ids begin with. Without it that is 4; 8 is for private use (RFC
// 9562).
type Branded interface {
	Brand() int
}
