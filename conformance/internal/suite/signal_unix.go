//go:build unix

package suite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Stop freezes the process as SIGSTOP does. On Linux it returns when all of the process's
// threads stand still, which on a busy machine is some time after the signal was sent.
func (c *Child) Stop() error {
	if err := c.p.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(100 * time.Microsecond) { // there is no event to wait for
		switch threads := c.running(); {
		case threads == 0:
			return nil
		case time.Since(start) > 10*time.Second:
			return fmt.Errorf("%d threads of the process run on after SIGSTOP", threads)
		}
	}
}

// running is how many threads have not come to a halt, as far as the kernel shows.
func (c *Child) running() (n int) {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.p.Process.Pid))
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		// pid (name) state ...; the name may hold anything.
		if i := bytes.LastIndexByte(stat, ')'); err == nil && i > 0 && i+2 < len(stat) && stat[i+2] != 'T' {
			n++
		}
	}
	return n
}

// Continue lets a frozen process run on.
func (c *Child) Continue() error { return c.p.Process.Signal(syscall.SIGCONT) }
