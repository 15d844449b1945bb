// Package check looks at the arguments of the adapters' constructors.
package check

import (
	"fmt"

	"github.com/distlock/locker"
)

// Invalid makes an error that matches [locker.ErrInvalid].
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", locker.ErrInvalid, fmt.Sprintf(format, args...))
}

// Options applies options until one of them is refused.
func Options[Option comparable](opts []Option, apply func(Option) error) error {
	for _, o := range opts {
		if o == *new(Option) {
			return Invalid("an option is nil")
		}
		if err := apply(o); err != nil {
			return err
		}
	}
	return nil
}
