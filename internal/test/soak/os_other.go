//go:build !linux

package soak

import (
	"syscall"
	"time"
)

// These are the numbers on BSD. Windows delivers neither: there processes are not frozen.
const sigStop, sigCont = syscall.Signal(17), syscall.Signal(19)

func sharedClock() instant { return instant(time.Now().UnixNano()) }
