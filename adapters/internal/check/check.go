// Package check makes the errors of adapters' constructors.
package check

import (
	"fmt"

	"github.com/distlock/locker"
)

// Invalid makes an error that matches [locker.ErrInvalid].
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}
