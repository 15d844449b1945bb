package conformance_test

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// strained are broken strategies whose fault shows only under load, a long way from the
// store, or when another process dies.
var strained = map[string]brokenStrategy{
	"logs nothing": {options(locker.WithLogger(slog.New(slog.DiscardHandler))), []string{"BlockedLogger", "LoggerThatLocks"}},
	"has one connection for all": {with(func(d *counted) {
		var connection sync.Mutex
		d.acquire = func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			connection.Lock()
			defer connection.Unlock()
			return d.Acquire(ctx, req)
		}
		d.renewEach = func(d *counting, ctx context.Context, c driver.Claim) error {
			connection.Lock()
			defer connection.Unlock()
			return d.renewOne(ctx, c)
		}
	}), []string{"ManyCallersFarAway"}},
	"asks three times": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		for range 2 {
			if a, err := d.Acquire(ctx, req); err != nil || a.Granted {
				return a, err
			}
		}
		return d.Acquire(ctx, req)
	}), []string{"RefusedCallersAskSeldom"}},
	"keeps its place when it gives up":              {keepingPlaces(func(driver.Watch) {}), []string{"GivesUpRightAfterASuccess"}},
	"keeps its place for a second when it gives up": {keepingPlaces(func(w driver.Watch) { pace.After(time.Second, w.Close) }), []string{"GivesUpRightAfterASuccess"}},
	"renews the holds of all": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() {
			if l, _ := d.s.Held(c); l != nil {
				for _, claim := range l.Claims {
					claim.Extend(c.TTL)
				}
			}
		})
		return d.renewOne(ctx, c)
	}), []string{"CoOwnerIsKilled"}},
}

// keepingPlaces is a fair strategy in whose queue those who left stay, until leave closes their Watch.
func keepingPlaces(leave func(w driver.Watch)) fake {
	v := fakeNotified
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		return placeKeeper{&notifying{fakeDriver{s: s, fair: true}}, leave}
	}
	return v
}

type placeKeeper struct {
	*notifying
	leave func(w driver.Watch)
}

func (d placeKeeper) Watch(ctx context.Context, key string) (driver.Watch, error) {
	w, err := d.notifying.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	return stayingWatch{w, d.leave}, nil
}

// stayingWatch is not closed by its Close.
type stayingWatch struct {
	driver.Watch
	leave func(w driver.Watch)
}

func (w stayingWatch) Close() { w.leave(w.Watch) }
