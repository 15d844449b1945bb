package driver

import (
	"context"
	"time"

	"github.com/distlock/locker/internal/bound"
)

// Ends returns the three things that can end a command's ctx: whichever comes first ends it. caller is the context
// of the user's call; its Err is [context.Canceled] or [context.DeadlineExceeded], whatever the Err of the user's
// own type is. locker ends with Close; it is nil if Close does not end the command. at is the deadline; it is zero
// if there is none. A driver that watches these three does not need ctx's Done, whose first call costs a timer and
// four allocations. If ctx is not a Locker's, caller is ctx itself.
func Ends(ctx context.Context) (caller, locker context.Context, at time.Time) {
	return bound.Ends(ctx)
}
