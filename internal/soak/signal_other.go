//go:build !unix

package soak

import "syscall"

// These are not delivered here: processes are not frozen, only killed.
const (
	sigStop = syscall.SIGINT
	sigCont = syscall.SIGINT
	sigQuit = syscall.SIGINT
)
