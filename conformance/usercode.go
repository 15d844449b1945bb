package conformance

import (
	"context"
	"log/slog"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/internal/suite"
)

// userCodeCases are about what users give to a Locker: loggers, observers and contexts.
var userCodeCases = group("faults", []Case{
	{Name: "BlockedLogger", Rules: []string{"R10", "R13", "R24"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testBlockedLogger,
		Contract: "a logger and an observer that never return delay no renewal, loss, Lock or Unlock, and Close by less than 5 s, while the store comes and goes"},
	{Name: "LoggerThatLocks", Rules: []string{"R10", "R13"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testLoggerThatLocks,
		Contract: "a logger and an observer may call the lease of the event, and lock with the Locker that calls them"},
	{Name: "SlowUnlockUnderItsOwnContext", Rules: []string{"R20"}, Needs: Capabilities{Faults: true}, Isolated: true, Test: testSlowUnlockUnderItsOwnContext,
		Contract: "Renew and Unlock under the lease's own context, or one derived from it, wait for their answer: that Unlock ends this context is no end of its wait"},
})

// handler is a [slog.Handler] that calls itself with the message of each record.
type handler func(message string)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r.Message); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }

// trouble has the store refuse commands until both the logger and the
// observer of a Locker know that something is wrong.
func (t *T) trouble(logged, observed <-chan struct{}) {
	t.Helper()
	t.NoError(t.faults().Refuse(), "making the store refuse commands")
	t.Ends(logged, t.Timing().Patience, "a line in the log about a renewal or a loss")
	t.Ends(observed, t.Timing().Patience, "an event of a renewal that failed")
	t.heal()
}

func testBlockedLogger(t *T) {
	never := make(chan struct{})
	defer close(never)
	logged, observed := make(chan struct{}, 1000), make(chan struct{}, 1000)
	l := t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery),
		locker.WithLogger(slog.New(handler(func(string) {
			logged <- struct{}{}
			<-never
		}))),
		suite.WithObserver(locker.ObserverFunc(func(_ context.Context, ev locker.Event) {
			if ev.Kind == locker.EventRenewFailed {
				observed <- struct{}{}
				<-never
			}
		})))
	other, key := t.Locker(), t.Key("k")
	lease := t.Lock(l, key)
	t.trouble(logged, observed)
	t.RenewedWithin(t.Timing().Patience, lease)
	short := t.lose(l, t.Key("short"))
	t.Is(short.Unlock(t.Context()), locker.ErrLost)
	t.FreeWithin(t.Timing().Patience, l, t.Key("free"))
	t.Taken(other, key)
	t.Unlock(lease)
	t.Free(other, key)
	t.Within(5*time.Second, "Close beside a logger that blocks", func() { t.NoError(l.Close(), "Close") })
}

func testLoggerThatLocks(t *T) {
	logged, observed := make(chan struct{}, 1000), make(chan struct{}, 1000)
	var l locker.Locker
	var lease *locker.Lease
	ready := make(chan struct{})
	call := func(what string, done chan<- struct{}) {
		<-ready
		_, _ = lease.Deadline(), lease.Context(t.Context()).Err()
		// It may fail: the store is away.
		if inner, err := l.TryLock(t.Context(), t.Key("from the "+what)); err == nil {
			_ = inner.Unlock(t.Context())
		}
		done <- struct{}{}
	}
	l = t.Locker(locker.WithRenewInterval(t.Timing().RenewEvery),
		locker.WithLogger(slog.New(handler(func(string) { call("logger", logged) }))),
		suite.WithObserver(locker.ObserverFunc(func(_ context.Context, ev locker.Event) {
			if ev.Kind == locker.EventRenewFailed {
				call("observer", observed)
			}
		})))
	lease = t.Lock(l, t.Key("k"))
	close(ready)
	t.trouble(logged, observed)
	t.RenewedWithin(t.Timing().Patience, lease)
	t.Unlock(lease)
	t.FreeWithin(t.Timing().Patience, l, lease.Key())
}

type userKey struct{} // of a value of the caller's

func testSlowUnlockUnderItsOwnContext(t *T) {
	l, other, key := t.Locker(), t.Locker(), t.Key("k")
	late := t.Timing().RenewEvery
	for what, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"its own": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"one with a value": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, userKey{}, nil), func() {}
		},
		"one with a cancellation": context.WithCancel,
		"one with a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, t.Timing().Patience)
		},
		"an inner lease's": func(ctx context.Context) (context.Context, context.CancelFunc) {
			inner := t.LockUnder(ctx, l, t.Key("inner"))
			return inner.Context(ctx), func() { t.Unlock(inner) }
		},
	} {
		lease := t.Lock(l, key)
		ctx, cancel := derive(lease.Context(t.Context()))
		t.NoError(t.faults().DelayReply(OpRenew, late), "delaying a reply")
		t.NoError(lease.Renew(ctx), "Renew under "+what)
		t.NoError(t.faults().DelayReply(OpRelease, late), "delaying a reply")
		t.NoError(lease.Unlock(ctx), "Unlock under "+what)
		if ctx.Err() == nil {
			t.Errorf("after Unlock a context is not over: %s", what)
		}
		cancel()
		t.Free(other, key)
	}
}
