//go:build !unix

package servers

import (
	"context"
	"os/exec"
	"time"
)

// Servers are started on Unix only.

type run struct{}

func newDir() (string, error) { return "", ErrNotInstalled }

// Command returns a command.
func Command(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }

// Start returns an error.
func (s *Server) Start(context.Context, func(context.Context) error) error { return ErrNotInstalled }

// Crash does nothing.
func (s *Server) Crash() {}

// Freeze does nothing.
func (s *Server) Freeze() {}

// Thaw does nothing.
func (s *Server) Thaw() {}

// CPU returns 0.
func (s *Server) CPU() time.Duration { return 0 }

func (s *Server) end() {}
