//go:build !linux

package child

import (
	"os/exec"
	"strconv"
)

// Spawn starts cmd and, beside it, a shell that kills it when this process is
// gone: the shell then reads the end of a pipe that only this process holds
// open. The function returned dismisses the shell; it must run once cmd has
// ended, before another process gets its id.
func Spawn(cmd *exec.Cmd) (release func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	watch := exec.Command("sh", "-c", "cat >/dev/null; kill -9 "+strconv.Itoa(cmd.Process.Pid))
	if _, err = watch.StdinPipe(); err == nil {
		err = watch.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}, nil
}
