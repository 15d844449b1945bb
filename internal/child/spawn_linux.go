package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

var spawnRequests = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go spawnLoop(requests)
	return requests
})

// Spawn starts cmd so that the kernel kills it when this process dies. The
// function returned is to be called when cmd has ended.
func Spawn(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	spawnRequests() <- spawnRequest{cmd, result}
	return func() {}, <-result
}

// spawnLoop starts every child from one thread that lives as long as the
// process. Pdeathsig belongs to the thread that forked, not to its process: the
// runtime ends idle and locked threads as it sees fit, and a child started from
// one of those would be killed early.
func spawnLoop(requests <-chan spawnRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.result <- r.cmd.Start()
	}
}
