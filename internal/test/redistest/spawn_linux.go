package redistest

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
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

// spawn starts cmd so that the kernel kills it when this process dies. The
// function returned is to be called when cmd has ended.
func spawn(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error, 1)
	spawnRequests() <- spawnRequest{cmd, result}
	return func() {}, <-result
}

// spawnLoop starts every child from one thread that lives as long as the
// process. Pdeathsig belongs to the thread that forked, not to its process: the
// runtime ends idle and locked threads as it sees fit, and a child started from
// one of those would be killed in the middle of a test.
func spawnLoop(requests <-chan spawnRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.result <- r.cmd.Start()
	}
}

// stopped reports whether the process has come to a halt after SIGSTOP, which
// takes effect some time after it was sent.
func stopped(pid int) bool { return state(pid) == 'T' }

// state returns the letter the kernel gives the process's main thread, 0 when
// there is no such process.
func state(pid int) byte {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// pid (name) state ...; the name may hold anything.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return 0
	}
	return stat[i+2]
}
