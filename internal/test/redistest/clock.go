package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/distlock/locker/internal/test/clock"
)

// WithSettableClock starts a server whose clock [Server.SetClock] can move; see
// package clock. On another system than Linux, [Start] skips the test.
func WithSettableClock() Option {
	return func(c *config) { c.clock = true }
}

// settableClock makes the environment in which a server reads a clock that can be set.
func (s *Server) settableClock() error {
	env, err := clock.Environment(s.runDir)
	s.cfg.env = append(s.cfg.env, env...)
	return err
}

// SetClock makes the clock of a server started WithSettableClock go ahead of the
// true one, in whole seconds, or behind it if that is negative. It returns when the
// server's clock has jumped.
func (s *Server) SetClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	if err := clock.Set(s.runDir, ahead); err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
	c := s.admin()
	defer c.Close()
	var now time.Time
	// A server that was just busy or frozen takes no connection while others queue for one: EAGAIN.
	if err := until("the server answers", func(ctx context.Context) (err error) {
		now, err = c.Time(ctx).Result()
		return err
	}); err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
	if d := time.Until(now) - ahead; d.Abs() > time.Minute {
		tb.Fatalf("redistest: setting a clock: it is off by %v", d)
	}
}
