// Package driver is the contract between package locker and a lock strategy: what
// the author of a strategy implements, and what the Locker does with it. Users of
// locks need package locker only.
//
// A driver is a handful of atomic commands against one store. Waiting, queueing,
// re-entry, renewal, deadlines, loss, clean-up and events are the Locker's,
// written once for all drivers; [locker.New] makes a Locker of a driver, and
// [conformance.Run] tests the two together.
//
// # What every driver keeps
//
//  1. A command is atomic in the store, and a grant is exclusive: at most one
//     claim holds a key, until it is released or its TTL has passed on the
//     store's clock. (A [HoldCounter] lets several claims of one owner hold a
//     key, and a [PermitKeeper] several claims of permits.)
//  2. Every command may be applied and its answer lost, or reach the store twice.
//     Both do no harm, because the command names a [Claim], and the id of a claim is
//     never used for another grant. A driver does not repeat a command by itself:
//     the Locker does, and it knows when not to.
//  3. A method returns within tens of milliseconds once its ctx is done, whether
//     or not the store has answered; the command may still be applied. If the driver
//     can arrange it, such a command is applied before a later command of the same
//     claim. (The Locker repeats a release that found
//     nothing after such a command.)
//  4. A fencing token is greater than every earlier token of its key, also when
//     the store has lost its data: start a counter at the clock, in microseconds.
//     It is positive and below 2^53, so that a float64 holds it exactly. A counter
//     expires, so that keys which are used once leave nothing behind. It does not
//     expire before its lock: keep it, for example, for max(2 × TTL, 10 min) longer.
//  5. A key is 1 byte to 16 KiB of UTF-8 plus the Locker's prefix, and may contain
//     any character, NUL and braces included. What the driver did not write at a
//     key is another program's lock (a refusal) or no lock at all ([ErrConflict]).
//     Neither is ever deleted, except that Break may delete another program's lock.
//  6. An owner is 1 byte to 1 KiB of UTF-8. Unless the caller named one it is the
//     claim's id.
//  7. The methods are called from many goroutines at once. After Close, Release
//     still works.
//
// # How long the Locker waits
//
// The Locker bounds each command by its ctx:
//
//   - Acquire by 4 s, or by the TTL if that is shorter;
//   - a batch of renewals by a third of its shortest remaining lease, 20 ms to 3 s; a renewal by hand by 4 s;
//   - Release by 2 s a try, and by 4 s after a Break;
//   - Watch, Listen and DetectLoss by 1 s, Watch of a [LossWatch] by 2 s;
//   - Inspect, Break, Permits and the other commands about one key by 4 s at most.
//
// Keys and PermitClaims get the caller's ctx.
//
// [locker.New]: https://pkg.go.dev/github.com/distlock/locker#New
// [conformance.Run]: https://pkg.go.dev/github.com/distlock/locker/conformance#Run
package driver

import (
	"context"
	"log/slog"
	"time"
)

// Driver is implemented by a strategy. The package comment has the rules of all methods. A driver may
// implement these interfaces besides: [Configurer], [Notifier], [HoldCounter], [PermitKeeper], [Inspector],
// [PermitInspector], [Signaller], [Asker], [LossDetector], [Sharder] and [NodeCounter].
//
// The Locker takes an error for transient trouble of unknown outcome unless it matches [ErrLost]
// (Renew, Release, SetHolds: the claim does not hold the key), [ErrConflict] or [ErrInvalid], or
// is a [*StoreError] that says otherwise.
type Driver interface {
	// Name is the strategy's name in errors, events and configuration.
	Name() string

	// Acquire makes one attempt to grant req.Key to req.ID for req.TTL, counted
	// by the store from its arrival. An attempt that is repeated with an id that
	// holds the key already is granted again, with the same token (of several that were
	// reserved, with one of them), for the TTL from then on.
	Acquire(ctx context.Context, req Request) (Answer, error)

	// Renew makes each claim last its TTL from now, if it still holds its key,
	// and never less than it has left. It calls answer exactly once for each
	// index before it returns, as early as it knows, from any goroutine: nil for renewed, an error
	// that matches ErrLost if the claim does not hold the key. All claims are of
	// one shard; see [Sharder]. At most 16 calls for one shard are under way at the same time, and one more
	// for each caller who renews a lease, and for each question after a signal.
	Renew(ctx context.Context, claims []Claim, answer func(i int, err error))

	// Release frees the key if c holds it; otherwise it touches nothing and
	// returns an error that matches ErrLost. It works after Close, too.
	Release(ctx context.Context, c Claim) error

	// Close ends what the driver started, within a second. It is called once.
	Close() error
}

// Claim is a process's hold of a key in the store.
type Claim struct {
	Key   string        // the name in the store, prefix included
	ID    string        // names this grant; never used for another one
	Owner string        // who holds: ID itself unless the caller named an owner
	Token int64         // the fencing token, once granted
	TTL   time.Duration // a whole number of milliseconds, 100 ms to 24 h; the same for the claim's life, but Acquire may be given less
	// Limit is how many permits the key has, and Permits how many of them the claim takes: 1 to
	// Limit. Both are 0 for a lock. Only a [PermitKeeper] gets claims of permits.
	Permits, Limit int
}

// Request is one attempt to acquire.
type Request struct {
	Claim
	Fencing bool // issue a token
	// Tokens is how many consecutive tokens the Locker could use, if it could use more than one. It
	// uses them for leases that it grants without a command: by a hand-over inside the process, or
	// under WithSticky. It is set only with Fencing.
	Tokens int
	// Short allows a grant for less than the TTL: the Locker renews the claim
	// before half of it is over.
	Short bool
	// Wait says that the Locker has a Watch on the key and will wait if refused:
	// the driver may keep a place in a queue for it, until the grant or until
	// the Watch is closed.
	Wait bool
	// Waits says that the caller waits if refused. Waited is how long the caller has waited so far. A
	// [PermitKeeper] orders the waiting Requests by Waited, so no decision uses another host's clock.
	Waits  bool
	Waited time.Duration
}

// Answer is the store's reply to a Request. Zero values mean "unknown".
type Answer struct {
	Granted bool
	Token   int64 // if granted with fencing
	// Tokens is how many tokens, from Token on, are reserved for this grant: all later grants of the
	// key get greater ones. 0 means one. At most Request.Tokens. A counter that begins at the clock
	// must not be ahead of the clock when the counter is lost: reserve tokens between the last one
	// issued and the clock, or at most [TokensAhead] from the clock on.
	Tokens int
	// Claim is the id that was granted; "" is the id of the Request. It is another id in two cases.
	// First, a driver may let a release grant the key to a waiter: to the claim of an earlier
	// Request that was refused. That Request was made under the same Watch or for permits, and named
	// the same owner or none. (Once this Request is refused, such a release may grant the key to its
	// claim, too.) Second, a driver that tried more than once was granted an id of Config.NewID.
	//
	// If Claim is set (it may also be set to the id of the Request), the lease begins at Since, and
	// not when the Locker called Acquire. Since is a time before the grant, or the time of the
	// grant. The grant lasts at least for TTL, counted from Since. A TTL of 0 means the TTL asked
	// for. TTL may be less than the TTL asked for if the Request is Short.
	Claim string
	Since time.Time
	TTL   time.Duration

	// For a Request for permits, granted or not:

	// Free is how many more permits could be granted now, or a smaller number.
	Free int
	// Limit is the limit that the Request before this one named, if the two limits differ.
	Limit int

	// Bids reports, with a refusal, that the driver keeps permits free for this Request. When the caller
	// stops waiting, the Locker sends a Release of the claim.
	Bids bool

	// If not granted:

	// Remaining is the rest of the holder's TTL, rounded up; 0 if it is
	// unknown or endless. A waiter asks again when it is over. Of permits it is the
	// time until the first claim ends. A driver of several servers may report more, as a
	// server may carry out the grant late.
	Remaining time.Duration
	// Owner is the holder's owner; "" if unknown. A [HoldCounter] gives it, so
	// that waiters of the same owner join the hold instead of queueing behind
	// others. So does a driver whose Settings have NamesHolders.
	Owner string
	// Asked says that the store has sent the holder a [SignalWaiting] with the refusal, because
	// [MayBeUnused] is true for the holder's Owner. If Asked is false, the Locker sends the signal.
	Asked bool
	// NoWakeUp says that this holder's release will not signal this driver's
	// Watch: the waiter polls.
	NoWakeUp bool
}

// Config has the values that a Locker gives to its driver.
type Config struct {
	// Logger logs what goes wrong in the background. It is never nil and never
	// blocks, whatever the user's handler does.
	Logger *slog.Logger
	// Options are those given by locker.WithDriverOption, in order.
	Options []any
	// Prefix begins all keys of the Locker.
	Prefix string
	// NodeChanged is for a driver whose store is several servers, some of which it can do
	// without. It reports to the users of the Locker that the node of this name is down, slow or
	// unusable from now on, and why, or (nil) that the node is well again. It never blocks.
	NodeChanged func(name string, trouble error)
	// NewID makes an id for a claim of this Locker, which no other claim has. It is for a
	// driver whose Acquire tries again after it has cleaned up: a try with the id of the one
	// before could be undone by the late clean-up. Answer.Claim is then the id that was
	// granted; the driver releases what its other tries were granted. NewID is for use
	// after Configure has returned.
	NewID func() string
}

// Settings are a driver's wishes to its Locker. A zero field leaves the Locker's default.
type Settings struct {
	// IDVersion is the version digit of the UUID that claim ids begin with: 4
	// by default, or 8 (RFC 9562, for private use), by which a driver recognises
	// its own claims in a store where other strategies lock, too.
	IDVersion int
	// IDMark, unless it is 0, is the value of the three hex digits behind the version digit: by it the
	// driver recognises other Lockers that wait in the same way as its own Locker. The digits are
	// random by default.
	IDMark uint16
	// NamesHolders promises that a refusal because of a claim whose owner was not named
	// has that claim's id in Answer.Owner. With it, and with a [Signaller], users may take locker.WithSticky.
	NamesHolders bool
}

// TokensAhead is how many tokens a driver may reserve from the clock on for one grant: the next
// grant of the key comes later than that many microseconds.
const TokensAhead = 32

// Configurer is implemented by a driver that has options or settings of its own
// or wants to log. Configure is called once, before any command. The driver
// refuses an element of Options it does not know with ErrInvalid; a driver that
// is no Configurer takes no options.
type Configurer interface {
	Configure(Config) (Settings, error)
}

// Notifier is implemented by a driver whose store announces releases. Without it
// waiters poll every 10 to 100 ms.
type Notifier interface {
	// Watch returns once releases of key are certain to be signalled; a release that comes before
	// may be missed, so the Locker tries once more after Watch has returned. The Locker keeps at
	// most one Watch per key, however many wait, and opens it again at most once a second. ctx is
	// for this call only: the Watch lasts until it is closed, which the Locker does before it closes
	// the driver.
	Watch(ctx context.Context, key string) (Watch, error)
}

// Watch is a subscription to the releases of one key.
type Watch interface {
	// C receives when the key may be free. It may miss signals (the Locker polls
	// about once a second anyway), and may have signals without a release. Its buffer
	// holds one signal. When the Watch can signal no more, it closes C; the Locker then
	// closes the Watch and asks for another one.
	C() <-chan struct{}
	// Close ends the subscription and gives up the place kept for it, if any,
	// passing on what was granted to it. It returns within tens of milliseconds.
	Close()
}

// HoldCounter is implemented by a driver that keeps re-entrant hold counts in the store, where
// other processes see them. With it, Acquire by another claim of the owner that holds the key is
// granted: it joins the lock with the same token, and Release takes away the holds of its own
// claim only. Each claim of the lock has an expiry of its own, moved by its own renewals. The key
// is free when the last claim has ended, and Answer.Remaining is that of the claim that lasts
// longest. If a claim with Fencing joins a lock that has no token, the driver gives the claim a
// token. A refusal names the holder's owner.
type HoldCounter interface {
	// SetHolds sets the holds of claim c to n, which is 1 or more; it does not add n.
	// It leaves the lease as it is. It returns an error that matches ErrLost if c does not
	// hold the key. The Locker sends one SetHolds or Release of a claim at a time.
	SetHolds(ctx context.Context, c Claim, n int) error
}

// Sharder is implemented by a driver whose keys live in places that fail apart,
// such as the nodes of a cluster: claims of different shards are never renewed
// in one batch, and a shard that fails delays no command of another.
type Sharder interface {
	Shard(key string) string
}

// NodeCounter is implemented by a driver that keeps each lock on several servers.
type NodeCounter interface {
	// Nodes returns how many servers have claim c, as far as this process knows, and how
	// many servers there are. It asks none of them.
	Nodes(c Claim) (have, of int)
}
