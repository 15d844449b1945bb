package driver

import (
	"context"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Ends returns why and when a command's ctx ends. It ends with caller, the context of the user's call;
// with locker, which ends with Close, and is nil if Close does not end the command; and at the time at,
// which is zero if there is none. A driver that watches these three never asks for ctx's Done, whose
// first call costs a timer and four allocations. If ctx is not a Locker's, caller is ctx itself.
func Ends(ctx context.Context) (caller, locker context.Context, at time.Time) {
	return bound.Ends(ctx)
}
