//go:build !unix

package suite

import "errors"

// Stop freezes the process where that is possible.
func (c *Child) Stop() error { return errors.ErrUnsupported }

// Continue lets a frozen process run on.
func (c *Child) Continue() error { return errors.ErrUnsupported }
