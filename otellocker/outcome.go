package otellocker

import (
	"context"
	"errors"

	"github.com/distlock/locker"
)

// outcome is how a Lock or TryLock ended.
type outcome uint8

const (
	acquired outcome = iota
	notAcquired
	deadlineExceeded
	canceled
	unavailable
	lost
	conflict
	invalidUse
	closed
	otherOutcome
	outcomes // how many there are
)

var outcomeNames = [outcomes]string{
	acquired:         "acquired",
	notAcquired:      "not_acquired",
	deadlineExceeded: "deadline_exceeded",
	canceled:         "canceled",
	unavailable:      "unavailable",
	lost:             "lost",
	conflict:         "conflict",
	invalidUse:       "invalid",
	closed:           "closed",
	otherOutcome:     "other",
}

// failed reports whether something went wrong. It is no failure that another owner holds the key, or that the
// caller ended its wait.
func (o outcome) failed() bool { return o >= unavailable }

// outcomeOf returns the outcome for err, of a NotAcquired. The order matters: what ended the
// caller's context is part of err, and may match any error.
func outcomeOf(err error) outcome {
	switch {
	case errors.Is(err, locker.ErrNotAcquired):
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return deadlineExceeded
		case errors.Is(err, context.Canceled):
			return canceled
		}
		return notAcquired
	case errors.Is(err, locker.ErrUnavailable):
		return unavailable
	case errors.Is(err, locker.ErrLost):
		return lost
	case errors.Is(err, locker.ErrConflict):
		return conflict
	case errors.Is(err, locker.ErrInvalid):
		return invalidUse
	case errors.Is(err, locker.ErrClosed):
		return closed
	}
	return otherOutcome
}

// cause is why a lease was lost.
type cause uint8

const (
	denied cause = iota
	expired
	maxHold
	maxRenewals
	lockerClosed
	otherCause
	causes // how many there are
)

var causeNames = [causes]string{
	denied:       "denied",
	expired:      "expired",
	maxHold:      "max_hold",
	maxRenewals:  "max_renewals",
	lockerClosed: "closed",
	otherCause:   "other",
}

// causeOf returns the cause in the error of an EventLost.
func causeOf(err error) cause {
	switch {
	case errors.Is(err, locker.ErrDenied):
		return denied
	case errors.Is(err, locker.ErrExpired):
		return expired
	case errors.Is(err, locker.ErrMaxHold):
		return maxHold
	case errors.Is(err, locker.ErrMaxRenewals):
		return maxRenewals
	case errors.Is(err, locker.ErrClosed):
		return lockerClosed
	}
	return otherCause
}
