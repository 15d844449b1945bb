// Package job has the lock of a job that instances of a program share, as the adapters of
// schedulers use it.
package job

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/adapters/internal/check"
)

// DefaultMinHold is for clocks that differ by less.
const DefaultMinHold = 500 * time.Millisecond

// Settings of the locks of jobs.
type Settings struct {
	Locker  locker.Locker
	Options []locker.LockOption

	minHold time.Duration
}

// NewSettings returns settings with the default minimum hold.
func NewSettings(l locker.Locker) Settings { return Settings{Locker: l, minHold: DefaultMinHold} }

// SetMinHold sets for how long a lock is held at least.
func (s *Settings) SetMinHold(d time.Duration) error {
	if d < 0 || d > locker.MaxDuration {
		return check.Invalid("WithMinHold(%v): 0s to %v", d, locker.MaxDuration)
	}
	s.minHold = d
	return nil
}

// Hold is a lock of a job that runs.
type Hold struct {
	Lease *locker.Lease
	least time.Time // how long to hold at least
}

// TryLock makes one attempt. The owner is new: a run does not share the lock of another one whose context names the
// same owner.
func (s *Settings) TryLock(ctx context.Context, key string) (Hold, error) {
	lease, err := s.Locker.TryLock(locker.ContextWithOwner(ctx, rand.Text()), key, s.Options...)
	return Hold{lease, time.Now().Add(s.minHold)}, err
}

// Unlock gives the lock back when the minimum hold is over: also where ctx has ended, for the
// clocks of others have not.
func (h Hold) Unlock(ctx context.Context) error {
	time.Sleep(time.Until(h.least))
	return h.Lease.Unlock(ctx)
}
