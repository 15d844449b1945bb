package locker

import (
	"errors"
	"fmt"
)

// opError is what Lock, Unlock and Renew fail with: one of the sentinels, and
// why.
type opError struct {
	strategy, op, key string
	kind              error // a sentinel
	why               error // may be nil
	hint              string
}

func (e *opError) Error() string {
	s := fmt.Sprintf("locker: %s: %s %s: %v", e.strategy, e.op, quoteKey(e.key), e.kind)
	if e.why != nil {
		s += ": " + e.why.Error()
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

// quoteKey keeps a 16 KiB key from filling the log.
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

// lossError is why a lease was lost; it matches ErrLost and the cause.
type lossError struct {
	strategy, key string
	cause         error
}

func (e *lossError) Error() string {
	return fmt.Sprintf("locker: %s: %s: %v: %v", e.strategy, quoteKey(e.key), ErrLost, e.cause)
}

func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }

// lostContextError is the Err of a lease context whose lease is lost: Canceled,
// as contexts go, and ErrLost.
type lostContextError struct{ cause error }

func (e lostContextError) Error() string   { return e.cause.Error() }
func (e lostContextError) Unwrap() []error { return []error{errCanceled, e.cause} }

// What a driver's error means to the engine.

func isPermanent(err error) bool {
	var s *StoreError
	if errors.As(err, &s) && s.Permanent {
		return true
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrInvalid)
}

// maybeApplied reports whether a command that failed with err may have taken
// effect nevertheless.
func maybeApplied(err error) bool {
	var s *StoreError
	if errors.As(err, &s) {
		return !s.NotApplied
	}
	return !errors.Is(err, ErrConflict) && !errors.Is(err, ErrInvalid)
}
