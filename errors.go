package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/distlock/locker/driver"
)

// Errors. Match them with [errors.Is]. The errors that methods return wrap these with the
// strategy, the key and the cause; ErrInvalid with the value given and the values allowed.
var (
	// ErrNotAcquired: the key stayed taken for as long as the caller waits, or the caller's
	// context ended, before the call or in the wait. In the second case the error also matches
	// the context's error, and the key may be free.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost: the lease ended before it was unlocked. Another owner may hold
	// the key by now.
	ErrLost = driver.ErrLost
	// ErrNotHeld: the lease was unlocked, or left by LetExpire, before; or nobody holds the key
	// that ForceUnlock or RequestRelease is about.
	ErrNotHeld = errors.New("lock not held")
	// ErrUnavailable: the store could not be used, or its answer did not
	// arrive; whether the command took effect may be unknown. Trying again may help. Lock itself
	// has tried for max(TTL, 15 s), unless its wait ended earlier or the trouble needs a person.
	ErrUnavailable = errors.New("lock store unavailable")
	// ErrConflict: the key holds something that no lock can be (on Redis: neither a string nor a hash;
	// strings and hashes are waited for, as locks of other libraries), or it holds a lock of another
	// kind than the call is for. What the key holds is never deleted.
	ErrConflict = driver.ErrConflict
	// ErrInvalid: a bad key, option or argument, a zero Lease, or something that the strategy
	// cannot do. Some errors about the strategy match [errors.ErrUnsupported], too.
	ErrInvalid = driver.ErrInvalid
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("locker closed")
)

// DoError is the error of [Do] when fn did not run, when fn ran and the lock was lost or could
// not be given back after it, or when fn's error contains a DoError of an inner Do. Otherwise Do
// returns fn's own error. Get a DoError by [errors.As]; errors.Is matches the errors in it.
type DoError struct {
	Key string
	Ran bool // fn ran: do not simply call Do again if fn must not run twice
	Err error
}

func (e *DoError) Error() string {
	if !e.Ran {
		return fmt.Sprintf("Do with %s: the function did not run: %v", quoteKey(e.Key), e.Err)
	}
	return fmt.Sprintf("Do with %s: the function ran; %v", quoteKey(e.Key), e.Err)
}

func (e *DoError) Unwrap() error { return e.Err }

// opError is the error of Lock, Unlock and Renew: a sentinel and its cause.
type opError struct {
	strategy, op, key string
	kind              error // a sentinel
	why               error // may be nil
	hint              string
}

func (e *opError) Error() string {
	s := fmt.Sprintf("locker: %s: %s %s: ", e.strategy, e.op, quoteKey(e.key))
	kind, why := e.kind.Error(), ""
	if e.why != nil {
		why = e.why.Error()
	}
	switch {
	case why == "":
		s += kind
	case strings.HasPrefix(why, kind): // a driver's own words for it
		s += why
	default:
		s += kind + ": " + why
	}
	if e.hint != "" {
		s += " (" + e.hint + ")"
	}
	return s
}

func (e *opError) Unwrap() []error {
	if e.why == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.why}
}

// conflict matches ErrConflict, in its own words: the key has a lock, which does not allow what the caller wants.
type conflict string

func (c conflict) Error() string { return string(c) }
func (c conflict) Unwrap() error { return ErrConflict }

// quoteKey shortens long keys, which may have 16 KiB.
func quoteKey(key string) string {
	const most = 80
	if len(key) <= most {
		return fmt.Sprintf("%q", key)
	}
	return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
}

type invalidError struct{ msg string }

func (e *invalidError) Error() string { return "locker: " + ErrInvalid.Error() + ": " + e.msg }
func (e *invalidError) Unwrap() error { return ErrInvalid }

func invalid(format string, args ...any) error {
	return &invalidError{fmt.Sprintf(format, args...)}
}

// lossError is the loss of a lease. It matches ErrLost and the cause.
type lossError struct {
	strategy, key string
	cause         error
}

func (e *lossError) Error() string {
	return fmt.Sprintf("locker: %s: %s: %v: %v", e.strategy, quoteKey(e.key), ErrLost, e.cause)
}

func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }

// lastFailure is the reason for giving up, with the last failure before it.
type lastFailure struct{ why, last error }

func (e *lastFailure) Error() string   { return e.why.Error() + "; last failure: " + e.last.Error() }
func (e *lastFailure) Unwrap() []error { return []error{e.why, e.last} }

// Causes of a loss. An error that matches [ErrLost] also matches its cause. [ErrClosed] is a cause, too. After a limit
// or Close the key stays the caller's until the lease's Deadline.
var (
	ErrExpired     = errors.New("it was not renewed before its deadline")
	ErrDenied      = errors.New("the store says that another holder has the key, or none")
	ErrMaxHold     = errors.New("the time given by WithMaxHold is over")
	ErrMaxRenewals = errors.New("the renewals given by WithMaxRenewals are used up")
)

// Reasons for a failed attempt.
var (
	errTaken    = errors.New("another owner holds the key")
	errLocal    = errors.New("another caller in this process holds the key or waits for it")
	errLate     = errors.New("the grant arrived after its lease had ended")
	errNoAnswer = errors.New("no answer came in time")
)

// withoutContextErrors hides a timeout or cancellation of the Locker's own: only the end of
// the caller's context is to match one of context's errors.
func withoutContextErrors(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w (%v)", errNoAnswer, err) //nolint:errorlint // hides the context error, which is not the caller's
	}
	return err
}

// isLost reports whether err says that a claim does not hold its key.
func isLost(err error) bool { return errors.Is(err, ErrLost) }
