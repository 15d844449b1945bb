//go:build !linux

package soak

import "os/exec"

// spawn starts a worker; it ends when its standard input does.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
