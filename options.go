package locker

import (
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// DefaultTTL is how long a lease lasts without renewal unless [WithTTL]
	// says otherwise.
	DefaultTTL = 30 * time.Second
	// MinTTL is the least that [WithTTL] accepts.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the most that [WithTTL] accepts.
	MaxTTL = 24 * time.Hour
	// MaxDuration is the longest wait and the longest hold that can be given;
	// leave the option out for no bound.
	MaxDuration = 365 * 24 * time.Hour
	// MaxKeyLen is the longest key accepted, in bytes, without the prefix.
	MaxKeyLen = 16 << 10

	// MaxHandOvers is how many hand-overs in a row WithHandOver accepts. There are fewer where the store
	// reserves fewer tokens for a grant.
	MaxHandOvers = 255

	maxOwnerLen = 1 << 10

	// reserved begins the names of what strategies keep in the store beside the locks:
	// "locker:fence:{k}" is the fencing counter of k.
	reserved = "locker:"
)

// Option configures a Locker when it is made. Every [LockOption] is one: given
// to a constructor it sets the default for each call.
type Option interface {
	apply(*settings)
}

// LockOption configures one call of Lock or TryLock. It takes precedence over what the
// constructor was given; where the call re-enters, TTL, renewal and limits stay those of the
// outermost Lock. If several options set the same thing, the last one counts. But two of
// WithRenewal, WithoutRenewal and WithMaxRenewals in one call, or in one constructor, fail with
// [ErrInvalid].
type LockOption interface {
	Option
	applyCall(*callSettings)
}

const (
	noWaitBound = time.Duration(-1)
	noLimit     = -1
)

// callSettings are the settings of one call; a Locker has the defaults.
type callSettings struct {
	ttl      time.Duration
	wait     time.Duration // noWaitBound: until ctx is done
	partOf   *waitBudget   // began before; nil: the wait begins with the call
	renewals int32         // noLimit: as many as it takes; 0: none
	millis   uint32        // the margin
	maxHold  time.Duration // 0: no limit
	capacity               // of a call for permits
	metadata string        // appended to each claim's id
	chosen   string        // the option that set renewals, at this level
	err      error         // the first bad argument
}

func (c *callSettings) margin() time.Duration { return time.Duration(c.millis) * time.Millisecond }

type settings struct {
	call          callSettings
	prefix        string
	logger        *slog.Logger  // nil: none
	observer      Observer      // nil: none
	renewInterval time.Duration // 0: a third of the TTL
	noFencing     bool
	handOvers     int           // in a row; 0: none
	handOverFor   time.Duration // since the store's grant
	sticky        time.Duration // how long a claim is kept without a lease; 0: not at all
	lossDetection bool
	driverOptions []any
	err           error
}

func defaultSettings() settings {
	return settings{
		call:        callSettings{ttl: DefaultTTL, wait: noWaitBound, renewals: noLimit},
		handOvers:   defaultHandOvers,
		handOverFor: defaultHandOverTime,
	}
}

type option func(*settings)

func (o option) apply(s *settings) { o(s) }

type lockOption func(*callSettings)

func (o lockOption) apply(s *settings)         { o(&s.call) }
func (o lockOption) applyCall(c *callSettings) { o(c) }

func (c *callSettings) refuse(format string, args ...any) {
	if c.err == nil {
		c.err = invalid(format, args...)
	}
}

func (s *settings) refuse(format string, args ...any) {
	if s.err == nil {
		s.err = invalid(format, args...)
	}
}

// renew sets how often a lease is renewed. Two options that contradict each other
// are refused, unless one was the constructor's and the other the call's.
func (c *callSettings) renew(n int, option string) {
	if c.chosen != "" && c.chosen != option {
		c.refuse("%s and %s contradict each other", c.chosen, option)
	}
	c.renewals, c.chosen = int32(min(n, math.MaxInt32)), option
}

// WithTTL sets how long the lease lasts from when it was asked for, and from each renewal. After a
// crash of the holder the key is free when the TTL is over, with etcd up to 3 s after the Deadline.
// Default 30 s, at least 100 ms, at most 24 h.
func WithTTL(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d < MinTTL || d > MaxTTL {
			c.refuse("WithTTL(%v): a TTL is %v to %v", d, MinTTL, MaxTTL)
			return
		}
		// The store counts whole milliseconds; more than promised does no harm.
		c.ttl = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	})
}

// WithWait bounds how long Lock waits; when the bound is reached Lock fails with
// [ErrNotAcquired], or with [ErrUnavailable] if the store did not answer. 0 is one attempt; d is at most 365 days.
// Default [WithUnboundedWait].
func WithWait(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d < 0 || d > MaxDuration {
			c.refuse("WithWait(%v): a wait is 0s to %v; use WithUnboundedWait to wait until the context is done", d, MaxDuration)
			return
		}
		c.wait = d
	})
}

// WithUnboundedWait lets Lock wait until its context is done, or an outage of the store has lasted for
// max(TTL, 15 s). It is the default, and undoes a constructor's WithWait for one call.
func WithUnboundedWait() LockOption {
	return lockOption(func(c *callSettings) { c.wait = noWaitBound })
}

// WithoutRenewal lets the lease end after its TTL unless [Lease.Renew] is called. It contradicts [WithRenewal] and
// [WithMaxRenewals], see [LockOption].
func WithoutRenewal() LockOption {
	return lockOption(func(c *callSettings) { c.renew(0, "WithoutRenewal") })
}

// WithRenewal renews the lease for as long as it is held. It is the default, and
// undoes a constructor's WithoutRenewal or WithMaxRenewals for one call.
func WithRenewal() LockOption {
	return lockOption(func(c *callSettings) { c.renew(noLimit, "WithRenewal") })
}

// WithMaxRenewals limits automatic renewal to n times, 1 to 2,147,483,647. Default: no limit. When renewal n+1 would be due,
// the lease is lost: its Lost closes. Part of the TTL (two thirds, unless the renewal interval was set)
// remains then for rolling back, and Unlock still frees the key early. [Lease.Renew] neither counts as
// a renewal nor moves the moment of the loss.
func WithMaxRenewals(n int) LockOption {
	return lockOption(func(c *callSettings) {
		if n < 1 || n > math.MaxInt32 {
			c.refuse("WithMaxRenewals(%d): 1 to %d; use WithoutRenewal for none and WithRenewal for no limit", n, math.MaxInt32)
			return
		}
		c.renew(n, "WithMaxRenewals")
	})
}

// WithMaxHold limits how long the lock is held. The lease is lost d after the grant: its Lost closes,
// and renewal stops. Part of the TTL remains then for rolling back, and Unlock still frees the key
// early, and returns [ErrLost]. If the lease would end by itself soon after d, because it is renewed
// rarely or never, it is lost at the latest a tenth of its TTL before it would end by itself. d is
// above 0, at most 365 days. Default: no limit.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d <= 0 || d > MaxDuration {
			c.refuse("WithMaxHold(%v): more than 0s, at most %v; use WithUnlimitedHold for no limit", d, MaxDuration)
			return
		}
		c.maxHold = d
	})
}

// WithUnlimitedHold sets no limit to how long the lock is held. It is the default,
// and undoes a constructor's WithMaxHold for one call.
func WithUnlimitedHold() LockOption {
	return lockOption(func(c *callSettings) { c.maxHold = 0 })
}

// WithMargin ends the lease for its holder d before it ends in the store: [Lease.Deadline] is d
// earlier. So a holder that has learned of its loss has d left to stop, and to wait for the
// effects of what it has sent, before another one can be granted the key. Where the lease
// has run out, Unlock does not free the key early. The margin protects resources that cannot
// check a fencing token. At most half of the TTL; default 0.
func WithMargin(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d < 0 || d > MaxTTL/2 {
			c.refuse("WithMargin(%v): want 0s to half of the TTL", d)
			return
		}
		c.millis = uint32((d + time.Millisecond - 1) / time.Millisecond)
	})
}

// WithPrefix puts s before every key in the store, so that applications sharing a store do not
// meet: at most 16 KiB of UTF-8 that does not begin with "locker:", because this library's own
// keys do. Default none.
func WithPrefix(s string) Option {
	return option(func(o *settings) {
		switch {
		case !utf8.ValidString(s) || len(s) > MaxKeyLen:
			o.refuse("WithPrefix: a prefix is at most %d bytes of UTF-8", MaxKeyLen)
		case strings.HasPrefix(s, reserved):
			o.refuse("WithPrefix(%q): want a prefix that does not begin with %q, as the library's own keys do", s, reserved)
		}
		o.prefix = s
	})
}

// WithLogger sends what goes wrong in the background (failed renewals, lost
// leases, panicking observers) and, at debug level, every grant and release to
// l. Its handler is called by a goroutine of the Locker's that does nothing
// else. Default: no logging.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *settings) {
		if l == nil {
			o.refuse("WithLogger(nil): leave it out to log nothing")
			return
		}
		o.logger = l
	})
}

// WithObserver delivers every event to obs; see [Observer]. Default none.
func WithObserver(obs Observer) Option {
	return option(func(o *settings) {
		if obs == nil {
			o.refuse("WithObserver(nil): leave it out to observe nothing")
		}
		o.observer = obs
	})
}

// WithRenewInterval sets how often held leases are renewed: 1 ms to 24 h. By default it is a third
// of the TTL. A [WithMargin] above about a tenth of the TTL makes the default shorter, down to
// about 12 % of the TTL. A call whose lease is to be renewed is refused unless the interval is
// shorter than 99 % of the TTL minus 2 ms minus the margin.
func WithRenewInterval(d time.Duration) Option {
	return option(func(o *settings) {
		if d < time.Millisecond || d > MaxTTL {
			o.refuse("WithRenewInterval(%v): 1ms to %v", d, MaxTTL)
			return
		}
		o.renewInterval = d
	})
}

// WithoutFencing issues no fencing tokens: Token is 0 and the store keeps no
// counter.
func WithoutFencing() Option {
	return option(func(o *settings) { o.noFencing = true })
}

// WithDriverOption hands opt to the driver; strategies wrap it in options with
// names of their own. A driver that does not know opt refuses it with
// [ErrInvalid].
func WithDriverOption(opt any) Option {
	return option(func(o *settings) { o.driverOptions = append(o.driverOptions, opt) })
}

// newSettings returns the settings of a Locker made with opts.
func newSettings(opts []Option) (settings, error) {
	s := defaultSettings()
	for _, o := range opts {
		if o == nil {
			return s, invalid("an option is nil")
		}
		o.apply(&s)
	}
	if s.err == nil {
		s.err = s.call.err
	}
	if s.err == nil {
		s.err = s.check(&s.call)
	}
	if s.sticky > 0 {
		s.call.metadata = markSticky(s.call.metadata)
	}
	s.call.chosen = "" // a call may choose otherwise
	return s, s.err
}

func (s *settings) check(c *callSettings) error {
	if c.margin() > c.ttl/2 {
		return invalid("WithMargin(%v): want at most half of the TTL, which is %v", c.margin(), c.ttl)
	}
	if i := s.renewInterval; i >= validityOf(c.ttl)-c.margin() && c.renewals != 0 {
		return invalid("WithRenewInterval(%v) is too long for a TTL of %v: the lease would end before its first renewal", i, c.ttl)
	}
	return nil
}
