package redistest

import (
	_ "embed"
	byteorder "encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// WithSettableClock starts a server whose clock [Server.SetClock] can move. It works
// on Linux, and needs a C compiler as the race detector does.
func WithSettableClock() Option {
	return func(c *config) { c.clock = true }
}

// settableClock makes the environment in which a server reads its clock with an
// offset, which is in a file.
func (s *Server) settableClock() error {
	source, lib := filepath.Join(s.runDir, "clock.c"), filepath.Join(s.runDir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", lib, source).CombinedOutput(); err != nil {
		return fmt.Errorf("a server whose clock can be set needs Linux and a C compiler (on Debian: apt-get install gcc libc6-dev): %s: %w\n%s", cc, err, out)
	}
	s.cfg.env = append(s.cfg.env, "LD_PRELOAD="+lib, "LOCKER_CLOCK="+s.clockFile())
	return s.setClock(0)
}

func (s *Server) clockFile() string { return filepath.Join(s.runDir, "clock") }

// setClock writes in place: the server has the file mapped.
func (s *Server) setClock(ahead time.Duration) error {
	f, err := os.OpenFile(s.clockFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(byteorder.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	return err
}

// SetClock makes the clock of a server started WithSettableClock go ahead of the
// true one, in whole seconds, or behind it if that is negative. It returns when the
// server's clock has jumped.
func (s *Server) SetClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	if err := s.setClock(ahead); err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
	c := s.admin()
	defer c.Close()
	now, err := c.Time(tb.Context()).Result()
	if err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
	if d := time.Until(now) - ahead; d.Abs() > time.Minute {
		tb.Fatalf("redistest: setting a clock: it is off by %v", d)
	}
}
