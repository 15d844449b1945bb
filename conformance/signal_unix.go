//go:build unix

package conformance

import "syscall"

// Stop freezes the process as SIGSTOP does.
func (c *Child) Stop() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a frozen process run on.
func (c *Child) Continue() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
