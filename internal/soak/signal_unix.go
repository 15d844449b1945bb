//go:build unix

package soak

import "syscall"

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
	sigQuit = syscall.SIGQUIT
)
