package soak

import (
	"os/exec"
	"runtime"
	"sync"
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

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

// The kernel kills a worker when the thread that forked it ends; so this thread,
// which forks them all, lasts as long as the process.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

// spawn starts a worker that does not outlive this process, not even frozen.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := spawnRequest{cmd, make(chan error, 1)}
	spawner() <- r
	return <-r.result
}
