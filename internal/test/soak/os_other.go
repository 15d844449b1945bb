//go:build !linux

package soak

import (
	"os/exec"
	"syscall"
	"time"
)

// These are the numbers on BSD. Windows delivers neither: there processes are not frozen.
const sigStop, sigCont = syscall.Signal(17), syscall.Signal(19)

func sharedClock() instant { return instant(time.Now().UnixNano()) }

// spawn starts a worker; it ends when its standard input does.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
