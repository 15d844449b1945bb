//go:build !unix

package redistest

import "syscall"

// There is no pausing a process here: sending these fails, and tests that need
// it fail with it.
const (
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)
