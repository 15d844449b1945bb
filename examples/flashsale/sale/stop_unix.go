//go:build unix

package sale

import (
	"os"
	"os/signal"
	"syscall"
)

// stopMyself stops this process, and returns when somebody lets it go on. This thread may run for
// a moment before the signal has stopped it, so it waits.
func stopMyself() error {
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, syscall.SIGCONT)
	defer signal.Stop(wait)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-wait
	return nil
}

func goOn(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
