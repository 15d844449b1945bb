package leader

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// Option configures a candidate.
type Option interface {
	apply(*settings) error
}

type option func(*settings) error

func (o option) apply(to *settings) error { return o(to) }

type settings struct {
	least, most time.Duration // of the pauses
	minTerm     time.Duration
	name        string
	payload     string
	observer    func(Event)
	lock        []locker.LockOption
}

func newSettings(opts []Option) (settings, error) {
	s := settings{least: time.Second, most: 30 * time.Second, minTerm: 500 * time.Millisecond}
	err := check.Options(opts, func(o Option) error { return o.apply(&s) })
	if s.name == "" {
		host, _ := os.Hostname()
		s.name = fmt.Sprintf("%s/%d", cmp.Or(host, "localhost"), os.Getpid())
	}
	// A candidate that has waited for long is no failure, whatever the Locker's default is.
	s.lock = append(slices.Clip(s.lock), locker.WithUnboundedWait(), locker.WithMetadata(metaName, s.name, metaPayload, s.payload))
	return s, err
}

// WithIdentity sets what [Elector.Leader] and [Elector.Observe] show of this candidate while it leads: a
// name, and a payload such as an address. It lasts for a term. Both are of any characters; escaped as in a URL, with the names
// of the host and process they take at most 512 bytes. The default is the name of the host with the id of the
// process, "web-7/4711", and no payload.
func WithIdentity(name, payload string) Option {
	return option(func(s *settings) error {
		if name == "" {
			return check.Invalid("WithIdentity: want a name, got an empty one")
		}
		s.name, s.payload = name, payload
		return nil
	})
}

// WithMinTerm sets how long a term lasts at least: the lock of a function that returns earlier is kept until
// then, and Run waits. It also waits if a limit of the lock has ended the leader's term before. [Elector.Observe]
// looks twice in that time, so that it sees each term. Give the same time to all candidates and
// observers. Default 500 ms, at least 10 ms, less than the TTL.
func WithMinTerm(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < 10*time.Millisecond || d > locker.MaxTTL {
			return check.Invalid("WithMinTerm(%v): want 10ms to %v", d, locker.MaxTTL)
		}
		s.minTerm = d
		return nil
	})
}

// WithBackoff sets the pause before a candidate stands again whose term did not end well, or that
// could not stand: least after the first failure, twice as long after each one that follows, up
// to the maximum, which is the parameter most. The jitter takes off up to a half. If a term
// lasted longer than that maximum, the next pause is least again. Default 1 s to 30 s.
func WithBackoff(least, most time.Duration) Option {
	return option(func(s *settings) error {
		if least <= 0 || most < least || most > locker.MaxDuration {
			return check.Invalid("WithBackoff(%v, %v): the first is more than 0s, the second not less than the first and at most %v", least, most, locker.MaxDuration)
		}
		s.least, s.most = least, most
		return nil
	})
}

// WithLockOptions gives the lock options, WithTTL and WithMaxHold above all. WithWait and
// WithMetadata count for nothing: a candidate waits until its context ends, and has an identity.
func WithLockOptions(opts ...locker.LockOption) Option {
	return option(func(s *settings) error {
		s.lock = append(s.lock, opts...)
		return nil
	})
}

// WithObserver calls f with every event, in order, from the goroutine of Run, which
// waits for f.
func WithObserver(f func(Event)) Option {
	return option(func(s *settings) error {
		if f == nil {
			return check.Invalid("WithObserver(nil): leave it out to observe nothing")
		}
		s.observer = f
		return nil
	})
}

// Kind distinguishes an [Event] from others.
type Kind string

// The kinds of events.
const (
	Elected Kind = "elected" // the candidate leads; its function is called next
	Ended   Kind = "ended"   // its function has returned and the lock was given back
	Failed  Kind = "failed"  // the candidate could not stand; it tries again
)

// Event is something that happened to a candidate.
type Event struct {
	Kind  Kind
	Token int64 // of the term; 0 of Failed
	// Err is the reason of Failed. For Ended it is the error that the function returned,
	// joined with one that matches ErrLost or ErrUnavailable if the leadership was lost
	// before or the lock could not be given back.
	Err error
}
