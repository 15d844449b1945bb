package soak

import (
	"syscall"
	"unsafe"
)

const sigStop, sigCont = syscall.SIGSTOP, syscall.SIGCONT

const clockMonotonic = 1 // CLOCK_MONOTONIC, which package time reads as well

func sharedClock() instant {
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic("soak: no monotonic clock: " + errno.Error())
	}
	return instant(ts.Nano())
}
