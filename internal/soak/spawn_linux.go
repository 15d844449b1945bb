package soak

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

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
