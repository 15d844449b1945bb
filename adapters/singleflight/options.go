package singleflight

import (
	"math"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// Option configures a Group.
type Option interface {
	apply(*settings) error
}

type option func(*settings) error

func (o option) apply(to *settings) error { return o(to) }

type settings struct {
	ttl     time.Duration
	early   float64
	prefix  string
	compute bool
	lock    []locker.LockOption
}

func newSettings(opts []Option) (settings, error) {
	s := settings{ttl: time.Minute, early: 1, prefix: "singleflight:"}
	err := check.Options(opts, func(o Option) error { return o.apply(&s) })
	return s, err
}

// WithTTL sets for how long a value is kept. Default 1 min, at least 1 ms, at most 365 days.
func WithTTL(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < time.Millisecond || d > locker.MaxDuration {
			return check.Invalid("WithTTL(%v): want 1ms to %v", d, locker.MaxDuration)
		}
		s.ttl = d
		return nil
	})
}

// WithEarly sets how early a value is computed anew: of a value that takes a second to compute, that happens about
// factor seconds before its end. 0 lets it run out. Default 1.
func WithEarly(factor float64) Option {
	return option(func(s *settings) error {
		if !(factor >= 0) || math.IsInf(factor, 1) {
			return check.Invalid("WithEarly(%v): want a number, 0 or more", factor)
		}
		s.early = factor
		return nil
	})
}

// WithPrefix puts prefix before the names of locks and results, in place of "singleflight:".
func WithPrefix(prefix string) Option {
	return option(func(s *settings) error {
		s.prefix = prefix
		return nil
	})
}

// ComputeWhenUnavailable lets each process compute for itself while the store of locks cannot be used: at once if the
// store refuses, and after 4 s if it does not answer. By default Do tries for the TTL of the lock, 15 s at least, and fails.
func ComputeWhenUnavailable() Option {
	return option(func(s *settings) error {
		s.compute = true
		return nil
	})
}

// WithLockOptions gives the lock options. The TTL is how long the others wait where a process dies while it computes.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(s *settings) error {
		s.lock = append(s.lock, opts...)
		return nil
	})
}
