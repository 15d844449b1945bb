package locker

import (
	"context"
	"log/slog"
	"time"
	"unicode/utf8"
)

const (
	// DefaultTTL is how long a lease lasts without renewal unless [WithTTL]
	// says otherwise.
	DefaultTTL = 30 * time.Second
	// MinTTL is the shortest TTL accepted.
	MinTTL = 100 * time.Millisecond
	// MaxKeyLen is the longest key accepted, in bytes, without the prefix.
	MaxKeyLen = 16 << 10

	maxOwnerLen = 1 << 10
)

// Option configures a Locker when it is made. Every [LockOption] is one: given
// to a constructor it sets the default for each call.
type Option interface {
	apply(*settings)
}

// LockOption configures one call of Lock or TryLock.
type LockOption interface {
	Option
	applyCall(*callSettings)
}

// callSettings are what one call needs to know; a Locker holds the defaults.
type callSettings struct {
	ttl         time.Duration
	wait        time.Duration // 0: until ctx is done
	noRenewal   bool
	maxRenewals int           // 0: no limit
	maxHold     time.Duration // 0: no limit
	err         error         // the first bad argument
}

type settings struct {
	call          callSettings
	prefix        string
	logger        *slog.Logger
	observer      Observer
	renewInterval time.Duration // 0: a third of the TTL
	noFencing     bool
	driverOptions []any
	err           error
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

// WithTTL sets how long the lease lasts from when it was sent for, and from each
// renewal: after a crash of the holder the key is free again when it ends.
// Default 30 s, at least 100 ms.
func WithTTL(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d < MinTTL {
			c.refuse("WithTTL(%v): a TTL is at least %v", d, MinTTL)
		}
		c.ttl = d
	})
}

// WithWait bounds how long Lock waits. 0, the default, waits until ctx is done.
// When the bound is reached Lock fails with [ErrNotAcquired].
func WithWait(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d < 0 {
			c.refuse("WithWait(%v): a wait is not negative; use TryLock for no wait", d)
		}
		c.wait = d
	})
}

// WithoutRenewal lets the lease end after its TTL unless [Lease.Renew] is called.
func WithoutRenewal() LockOption {
	return lockOption(func(c *callSettings) { c.noRenewal = true })
}

// WithMaxRenewals limits automatic renewal to n times. When renewal n+1 would
// be due, the lease is lost (its Lost closes) while part of the TTL (two thirds,
// unless the renewal interval was set) remains for rolling back; Unlock still
// frees the key early. n is at least 1.
func WithMaxRenewals(n int) LockOption {
	return lockOption(func(c *callSettings) {
		if n < 1 {
			c.refuse("WithMaxRenewals(%d): at least 1; use WithoutRenewal for none", n)
		}
		c.maxRenewals = n
	})
}

// WithMaxHold limits how long the lock is held: d after the grant the lease is
// lost (its Lost closes), and renewal stops, while at least part of the TTL
// remains for rolling back; Unlock still frees the key early.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *callSettings) {
		if d <= 0 {
			c.refuse("WithMaxHold(%v): the longest hold is positive", d)
		}
		c.maxHold = d
	})
}

// WithPrefix puts s before every key in the store, so that applications sharing
// a store do not meet. Default none.
func WithPrefix(s string) Option {
	return option(func(o *settings) {
		if !utf8.ValidString(s) || len(s) > MaxKeyLen {
			o.refuse("WithPrefix: a prefix is at most %d bytes of UTF-8", MaxKeyLen)
		}
		o.prefix = s
	})
}

// WithLogger sends what goes wrong in the background (failed renewals, lost
// leases, panicking observers) and, at debug level, every grant and release to
// l. Default: nowhere.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *settings) {
		if l == nil {
			o.refuse("WithLogger(nil): leave it out to log nothing")
			return
		}
		o.logger = l
	})
}

// WithObserver tells obs of every event; see [Observer]. Default none.
func WithObserver(obs Observer) Option {
	return option(func(o *settings) {
		if obs == nil {
			o.refuse("WithObserver(nil): leave it out to observe nothing")
		}
		o.observer = obs
	})
}

// WithRenewInterval sets how often held leases are renewed. Default a third of
// the TTL; a call whose TTL is not longer than the interval is refused.
func WithRenewInterval(d time.Duration) Option {
	return option(func(o *settings) {
		if d < time.Millisecond {
			o.refuse("WithRenewInterval(%v): at least 1ms", d)
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

type ownerKey struct{}

// ContextWithOwner names the caller for every Lock under the returned context:
// all who use the same owner share its locks and re-enter them. Use it where
// re-entry must cross goroutines that share no lease context, or, with
// hashreentrant, processes. An owner is 1 byte to 1 KiB of UTF-8; Lock refuses
// others.
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	return &ownerCtx{ctx, owner}
}

func explicitOwner(ctx context.Context) (owner string, named bool, err error) {
	owner, named = ctx.Value(ownerKey{}).(string)
	if named && (owner == "" || len(owner) > maxOwnerLen || !utf8.ValidString(owner)) {
		return "", true, invalid("the owner given by ContextWithOwner is 1 to %d bytes of UTF-8, not %d bytes %.40q", maxOwnerLen, len(owner), owner)
	}
	return owner, named, nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return invalid("the key is empty")
	case len(key) > MaxKeyLen:
		return invalid("the key is %d bytes long, at most %d are allowed", len(key), MaxKeyLen)
	case !utf8.ValidString(key):
		return invalid("the key %.40q is not UTF-8", key)
	}
	return nil
}
