package conformance

import "context"

// SeenWaiting does what the suite's observer does on [locker.EventWaiting], for
// strategies of tests that wait in ways of their own.
func SeenWaiting(ctx context.Context) {
	if m, ok := ctx.Value(markKey{}).(*mark); ok {
		m.seen()
	}
}

// IsMark reports whether a context's value of this key is the suite's.
func IsMark(key any) bool { _, ok := key.(markKey); return ok }
