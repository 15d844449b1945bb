package driver

import "errors"

// Error kinds, matched by [errors.Is]. Package locker has the same values under the
// same names.
var (
	// ErrLost: the claim does not hold the key.
	ErrLost = errors.New("lock lost")
	// ErrConflict: the key holds something that is not a lock.
	ErrConflict = errors.New("key is not a lock")
	// ErrInvalid: a bad option or argument.
	ErrInvalid = errors.New("invalid use")
)

// StoreError refines an error of a driver.
type StoreError struct {
	Err error
	// Permanent trouble needs a person (no permission, out of memory, wrong
	// password): Lock does not retry.
	Permanent bool
	// NotApplied says that the command certainly did not take effect, so that
	// there is nothing to clean up.
	NotApplied bool
}

func (e *StoreError) Error() string {
	if e.Err == nil {
		return "store error"
	}
	return e.Err.Error()
}

func (e *StoreError) Unwrap() error { return e.Err }

// IsPermanent reports whether err needs a person, so that trying again is
// pointless.
func IsPermanent(err error) bool {
	if s, ok := errors.AsType[*StoreError](err); ok && s.Permanent {
		return true
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrInvalid)
}

// MaybeApplied reports whether a command that failed with err may have taken
// effect nevertheless.
func MaybeApplied(err error) bool {
	if s, ok := errors.AsType[*StoreError](err); ok {
		return !s.NotApplied
	}
	return err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrLost)
}
