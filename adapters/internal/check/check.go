// Package check refuses bad arguments when an adapter is made, and not when its first
// lock is wanted: by then no caller may be left to tell.
package check

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock/locker"
)

// Lock is nil if l would take a lock of key with opts, and else an error that matches
// [locker.ErrInvalid]. It asks under a context that has ended: the Locker looks at the
// arguments and leaves the store alone.
func Lock(l locker.Locker, key string, opts ...locker.LockOption) error {
	if l == nil {
		return Invalid("the Locker is nil")
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.TryLock(over, key, opts...); errors.Is(err, locker.ErrInvalid) {
		return err
	}
	return nil
}

// Invalid makes an error that matches [locker.ErrInvalid].
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
