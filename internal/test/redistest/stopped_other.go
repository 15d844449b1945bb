//go:build !linux

package redistest

// stopped reports whether the process has come to a halt after SIGSTOP. There
// is no portable way to ask.
func stopped(int) bool { return true }
