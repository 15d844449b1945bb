package redistest

import (
	"context"
	"fmt"
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
// server's clock has jumped. (Valkey 9.1 reads its clock once a millisecond.)
func (s *Server) SetClock(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	ahead = ahead.Truncate(time.Second)
	if err := clock.Set(s.runDir, ahead); err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
	c := s.admin()
	defer c.Close()
	// A server that was just busy or frozen takes no connection while others queue for one: EAGAIN.
	if err := until("the server's clock has jumped", func(ctx context.Context) error {
		asked := time.Now()
		now, err := c.Time(ctx).Result()
		if err != nil {
			return err
		}
		if off := now.Add(-ahead); off.Before(asked.Add(-time.Second/2)) || off.After(time.Now().Add(time.Second/2)) {
			return fmt.Errorf("it is off by %v", time.Until(now)-ahead)
		}
		return nil
	}); err != nil {
		tb.Fatalf("redistest: setting a clock: %v", err)
	}
}
