package redistest

import (
	"bytes"
	"os"
	"strconv"
)

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
