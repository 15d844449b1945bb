package conformance

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// HarnessMaker makes a Harness with a store of its own. [Run] calls it once for
// most cases together, and once for each that breaks its store or looks at all
// that is in it. What the maker opens it closes by tb.Cleanup.
type HarnessMaker func(tb testing.TB) Harness

// Harness adapts one strategy to the suite: one store, and Lockers over it.
// Its methods are called from many goroutines.
//
// A harness that can do more says so in its Capabilities and implements the upgrades:
// [Constructor], [Inspector], [Breaker], [Planter],
// [Faults], [ServerFaults], [ChildMaker], [DriverMaker], [Wired].
type Harness interface {
	// NewLocker gives a Locker as a separate process would have it: identity
	// and connections of its own, over the harness's one store. The suite
	// closes it. The group several needs one that locker.New has made.
	NewLocker(tb testing.TB, opts ...locker.Option) locker.Locker
	Capabilities() Capabilities
	Timing() Timing
}

// Capabilities say what a strategy claims and what its harness can do. Every
// claim is checked: one of a strategy by the cases that need it, one of a
// harness by looking for the upgrade, whose absence then fails those cases.
// A case that needs an unclaimed capability is reported as skipped. What an interface of the driver
// shows, [OfDriver] claims by itself. Exclusion, re-entry
// within a Locker, renewal, loss, queueing and clean-up are demanded of every strategy
// and have no claim.
type Capabilities struct {
	// Name is the strategy's name in the report.
	Name string

	// Fencing: grants carry tokens. Without it every Token is 0.
	Fencing bool
	// StoredHolds: the store counts holds, so that the same explicit owner
	// re-enters from another Locker. Without it that owner is excluded.
	StoredHolds bool
	// Notified: the store wakes waiters; they do not depend on polling.
	Notified bool
	// Fair: waiters of different Lockers are served first come, first served.
	Fair bool
	// Quorum: a majority of three servers or more decides, and the driver is a [driver.NodeCounter]. So
	// contenders may refuse one another, and a try can fail while nobody holds the key.
	Quorum bool
	// Admin: the driver is a [driver.Inspector].
	Admin bool
	// Signals: the driver is a [driver.Signaller], beside an Inspector.
	Signals bool
	// Sticky: users may take locker.WithSticky, as the driver has Signals and names holders.
	Sticky bool
	// LossDetection: the driver is a [driver.LossDetector].
	LossDetection bool
	// Permits: the driver is a [driver.PermitKeeper].
	Permits bool

	Construct bool // the harness is a Constructor
	Inspect   bool // the harness is an Inspector
	Break     bool // the harness is a Breaker
	Plant     bool // the harness is a Planter
	Faults    bool // the harness is a Faults
	Scripts   bool // the store caches scripts, which Faults can make it forget
	Servers   bool // the harness is a ServerFaults
	Processes bool // the harness is a ChildMaker
	Drivers   bool // the harness is a DriverMaker
	Wired     bool // the harness is a Wired
}

// Timing holds every bound the cases use, so that a slow store changes one place. A zero
// field means its default. A machine that is slow at times needs no change: upper bounds are
// counted on a clock that slows down with it, and a case that begins while it is slow has
// leases up to three times as long. A machine that becomes slow in the middle of a case, as
// the group load can make it by itself, may need a longer TTL: 5 s, say.
type Timing struct {
	// TTL is the lease of cases that last longer than it and must not lose it.
	// Default 3 s, and not below 2 s: on a busy machine a goroutine may not run
	// for a second. Where time does not matter leases last the locker's default.
	TTL time.Duration
	// ShortTTL is the lease of cases that wait for one to end. Default 400 ms.
	ShortTTL time.Duration
	// MinTTL is the lease of cases that leave some behind. Default
	// [locker.MinTTL].
	MinTTL time.Duration
	// Granularity is the unit in which the store counts TTLs, rounding up. Default 1 ms.
	Granularity time.Duration
	// RenewEvery is the interval of cases that watch renewals. Default 100 ms.
	RenewEvery time.Duration
	// WakeWithin is the median time from an Unlock to the grant of a waiter
	// the store notifies. It has to be well below a second, where the look
	// every waiter takes anyway would hide a lost notification. Default 300 ms.
	WakeWithin time.Duration
	// PollWithin is how long a waiter may take to get a free lock if a
	// notification was lost: about a second, and slack. Default 4 s.
	PollWithin time.Duration
	// PollMedian is the same without the slack, as the median of some tries.
	// Default 1.5 s.
	PollMedian time.Duration
	// Prompt is how long a call takes that waits for nothing or whose context
	// ended: tens of milliseconds, and slack. Default 2 s.
	Prompt time.Duration
	// PromptMedian is the same without the slack, as the median of some tries.
	// Default 200 ms.
	PromptMedian time.Duration
	// Settle is how long after the last release goroutines, connections and
	// keys may remain: two seconds, and slack. Default 5 s.
	Settle time.Duration
	// SignalLife is how long a wake-up nobody took may stay in the store.
	// Default 10 s.
	SignalLife time.Duration
	// Slack is how late a timer or a goroutine may run. Default 3 s.
	Slack time.Duration
	// Patience bounds what must happen sooner or later: a contended Lock, the start
	// of a process. Default 30 s.
	Patience time.Duration
	// Guard bounds a whole case; when it runs out, the case fails with a dump
	// of all goroutines. Default 2 min.
	Guard time.Duration
}

// defaultTiming suits a store on the same machine.
var defaultTiming = Timing{
	TTL:          3 * time.Second,
	ShortTTL:     400 * time.Millisecond,
	MinTTL:       locker.MinTTL,
	Granularity:  time.Millisecond,
	RenewEvery:   100 * time.Millisecond,
	WakeWithin:   300 * time.Millisecond,
	PollWithin:   4 * time.Second,
	PollMedian:   1500 * time.Millisecond,
	Prompt:       2 * time.Second,
	PromptMedian: 200 * time.Millisecond,
	Settle:       5 * time.Second,
	SignalLife:   10 * time.Second,
	Slack:        3 * time.Second,
	Patience:     30 * time.Second,
	Guard:        2 * time.Minute,
}

func (tm Timing) withDefaults() Timing {
	fields, defaults := reflect.ValueOf(&tm).Elem(), reflect.ValueOf(defaultTiming)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(defaults.Field(i))
		}
	}
	return tm
}

// forMachine lengthens the leases that must not be lost by how slow the machine was of late:
// not up to steps that take three times as long as they should, and three times at most.
func (tm Timing) forMachine(factor float64) Timing {
	slowdown := min(max(factor/3, 1), 3)
	for _, d := range []*time.Duration{&tm.TTL, &tm.ShortTTL, &tm.MinTTL} {
		*d = time.Duration(float64(*d) * slowdown).Round(10 * time.Millisecond)
	}
	return tm
}

// Constructor is a harness that hands out the error of its strategy's
// constructor. Claim: [Capabilities].Construct.
type Constructor interface {
	New(opts ...locker.Option) (locker.Locker, error)
}

// Inspector is a harness that can look into its store. Names of keys are those
// in the store, prefix included. Claim: [Capabilities].Inspect.
type Inspector interface {
	// Keys lists everything in the store: locks, and what the strategy keeps
	// beside them, sessions and leases included.
	Keys(ctx context.Context) ([]StoredKey, error)
	// Holder returns what the store has at key to name the holder; "" if the key is free.
	Holder(ctx context.Context, key string) (string, error)
	// TTL returns how long the lease of key still lasts; 0 if free, negative if endless.
	TTL(ctx context.Context, key string) (time.Duration, error)
}

// StoredKey is one key in a store.
type StoredKey struct {
	Name string
	TTL  time.Duration // what is left; negative if the key never expires
}

// Breaker is a harness that can do to locks what operators and accidents do.
// No waiter need be notified of it. Claim: [Capabilities].Break.
type Breaker interface {
	// Break deletes the lock.
	Break(ctx context.Context, key string) error
	// Expire ends the lease now.
	Expire(ctx context.Context, key string) error
	// Steal puts a lock of somebody foreign in place of the present one, for a
	// minute.
	Steal(ctx context.Context, key string) error
	// Flush loses everything in the store.
	Flush(ctx context.Context) error
}

// Planter is a harness that can put things at a key that no strategy of this module
// writes. Claim: [Capabilities].Plant.
type Planter interface {
	// Foreigners lists the kinds of things. Those that are to be taken for locks count as
	// held for any caller, one who is the owner "x" as well.
	Foreigners() []Foreigner
	// Plant puts one at key.
	Plant(ctx context.Context, key, foreigner string) error
	// Intact reports whether it is still there, unchanged.
	Intact(ctx context.Context, key, foreigner string) (bool, error)
}

// Foreigner is a kind of thing that another program may have put at a key.
type Foreigner struct {
	Name string
	// Conflict: it is no lock, and Lock says [locker.ErrConflict]; otherwise it
	// counts as somebody's lock.
	Conflict bool
}

// Op is a kind of command that a driver sends.
type Op string

// The kinds, one for each method of [driver.Driver] and [driver.HoldCounter]
// that changes the store.
const (
	OpAcquire  Op = "acquire"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpSetHolds Op = "set holds"
)

// OpWatch is the command after which the store announces releases: see [driver.Notifier].
const OpWatch Op = "watch"

// Faults is a harness that can come between the Lockers and the store. What it
// does concerns all Lockers of the harness. Claim: [Capabilities].Faults.
type Faults interface {
	// LoseCommand loses the next command of the kind before it takes effect:
	// the sender sees a broken connection.
	LoseCommand(op Op) error
	// LoseReply lets the next command of the kind take effect and its reply
	// get lost: the sender sees a broken connection.
	LoseReply(op Op) error
	// Repeat lets the next command of the kind reach the store twice; the
	// sender sees the second reply.
	Repeat(op Op) error
	// DelayReply lets the next command of the kind take effect at once, while
	// its reply arrives d later. An OpWatch may take effect late, too.
	DelayReply(op Op, d time.Duration) error
	// Refuse makes the store refuse every command from now on.
	Refuse() error
	// BlackHole makes everything sent from now on vanish, without an error.
	BlackHole() error
	// Slow makes every reply arrive d later from now on, however many are on their way.
	Slow(d time.Duration) error
	// Sent is how many commands of the kind were sent since it was first asked for: where
	// the store is several servers, to the one that got the most.
	Sent(op Op) int
	// Heal undoes all of the above.
	Heal() error
	// CutNotifications ends everything that carries wake-ups, losing those on
	// their way. It may come back by itself.
	CutNotifications() error
	// ForgetScripts empties the store's cache of scripts.
	ForgetScripts() error
}

// ServerFaults is a harness that can do to its store's servers what crashes and
// operators do. If the store is several servers, each fault concerns all of them.
// Claim: [Capabilities].Servers.
type ServerFaults interface {
	// Persist makes the store keep through a crash what it acknowledges from now
	// on.
	Persist() error
	// Crash ends the servers as kill -9 does. Without Persist what they know is
	// gone for good.
	Crash() error
	// CutConnections ends every connection to the servers, those that carry
	// wake-ups included.
	CutConnections() error
	// Cause gets the servers into a trouble that [TroubleCases] was given, by its
	// name.
	Cause(trouble string) error
	// Recover undoes what the others did, and returns when the servers are at
	// anybody's service again. Those that crashed are started anew. It is called in cases that
	// are Isolated or Serial, and at their end: never beside a case that has the same harness.
	Recover() error
}

// ChildMaker is a harness whose store other processes can use. A case starts the test binary
// as one, whose [Main] makes its Locker. Claim: [Capabilities].Processes.
type ChildMaker interface {
	// ChildSpec returns the spec with which [Main] calls newLocker in the other process, such as an address.
	ChildSpec() string
}

// DriverMaker is a harness that makes drivers without a Locker, as every [DriverHarness]
// does. Claim: [Capabilities].Drivers.
type DriverMaker interface {
	// NewDriver makes a driver as a separate process would have it. The suite configures and
	// closes it.
	NewDriver() (driver.Driver, error)
}

// Wired is a harness that says where its store listens, and makes drivers that look for it
// elsewhere: at a proxy of the suite's, which freezes and cuts what is on its way between the
// driver and the store. See [faultproxy.NewPlain]. Claim: [Capabilities].Wired.
//
// [faultproxy.NewPlain]: https://pkg.go.dev/github.com/distlock/locker/conformance/faultproxy#NewPlain
type Wired interface {
	DriverMaker
	// StoreAddr is where the store listens: a host:port, or the path of a unix socket.
	StoreAddr() string
	// NewDriverAt is NewDriver with all connections to addr, a host:port, in place of
	// StoreAddr.
	NewDriverAt(addr string) (driver.Driver, error)
}
