package conformance_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker/conformance"
	"github.com/distlock/locker/driver"
)

// keeping is a driver that keeps permits.
type keeping struct{ counted }

// Permits implements [driver.PermitKeeper].
func (d keeping) Permits(ctx context.Context, key string) (out, limit int, err error) {
	err = d.sound.s.obey(ctx, conformance.OpPermits, func() (err error) {
		out, limit, err = d.sound.s.Table.Permits(key)
		return err
	})
	return out, limit, err
}

// keepingBadly is a driver that keeps permits, changed by f.
func keepingBadly(f func(d *counted)) fake {
	v := fakePermitting
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		d := keeping{newCounted(s)}
		f(&d.counted)
		return d
	}
	return v
}

func takingBadly(f func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error)) fake {
	return keepingBadly(func(d *counted) { d.acquire = f })
}

// brokenPermits break what is promised of keys with permits.
var brokenPermits = map[string]brokenStrategy{
	// In the store, below the faults: a bug in the driver would not see that a command arrives twice.
	"counts a permit twice that is asked for twice": {keepingBadly(func(d *counted) {
		arrived, s := map[string]int{}, d.sound.s
		d.sound.applied = func(req driver.Request, a driver.Answer) {
			arrived[req.ID]++
			if a.Granted && req.Limit > 0 && arrived[req.ID] > 1 {
				req.ID += "-again"
				s.Table.Acquire(req)
			}
		}
	}), []string{"PermitsSentTwice", "PermitsLinearizableUnderFaults"}},
	"keeps the permits of a dead process": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		if req.Limit > 0 {
			req.TTL = time.Hour
		}
		return d.Acquire(ctx, req)
	}), []string{"PermitsOfTheDead", "PermitsComeBack"}},
	"ignores weights": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.Permits = min(req.Permits, 1)
		return d.Acquire(ctx, req)
	}), []string{"WeightsCount", "PermitsAreBounded"}},
	"starves big requests": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.Waits = false
		return d.Acquire(ctx, req)
	}), []string{"BigRequestIsServed", "WriterIsServed"}},
	"keeps permits free for ever": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if req.Waits && !a.Granted && req.Limit > 0 {
			go func() {
				req.Permits = req.Limit
				for range 500 { // the bug: it is not the waiter that goes on asking
					time.Sleep(20 * time.Millisecond) // between attempts, as a waiter polls
					req.Waited += 20 * time.Millisecond
					if a, _ := d.Acquire(context.Background(), req); a.Granted {
						_ = d.Release(context.Background(), req.Claim)
						return
					}
				}
			}()
		}
		return a, err
	}), []string{"BigRequestIsServed"}},
	"keeps permits free for one that gave up": {keepingBadly(func(d *counted) {
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			held := c.Limit == 0
			d.locked(func() {
				for _, h := range d.s.PermitClaims(c.Key) {
					held = held || h.ID == c.ID
				}
			})
			if !held {
				return driver.ErrLost
			}
			return d.Release(ctx, c)
		}
	}), []string{"NothingIsKeptForNobody"}},
	"releases what a Locker has with the late end of a bid": {keepingBadly(func(d *counted) {
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			err := d.Release(ctx, c)
			if err != nil && c.Limit > 0 {
				who, _, _ := strings.Cut(c.ID, ":")
				d.locked(func() {
					for _, h := range d.s.PermitClaims(c.Key) {
						if strings.HasPrefix(h.ID, who+":") {
							_ = d.s.Table.Release(driver.Claim{Key: c.Key, ID: h.ID, Limit: c.Limit})
						}
					}
				})
			}
			return err
		}
	}), []string{"LateEndOfABid"}},
	"ends the bids of all with the late end of one": {keepingBadly(func() func(d *counted) {
		var mu sync.Mutex
		last := map[string]driver.Claim{} // that bids, by key
		return func(d *counted) {
			d.acquire = func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
				a, err := d.Acquire(ctx, req)
				if a.Bids {
					mu.Lock()
					last[req.Key] = req.Claim
					mu.Unlock()
				}
				return a, err
			}
			d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
				err := d.Release(ctx, c)
				if err != nil && c.Limit > 0 {
					mu.Lock()
					bids := last[c.Key]
					mu.Unlock()
					_ = d.Release(ctx, bids)
				}
				return err
			}
		}
	}()), []string{"LateEndSparesOthers", "NothingIsKeptForNobody"}},
	"keeps the first limit": {takingBadly(func() func(*counting, context.Context, driver.Request) (driver.Answer, error) {
		var mu sync.Mutex
		limits := map[string]int{}
		return func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
			mu.Lock()
			if limits[req.Key] == 0 {
				limits[req.Key] = req.Limit
			}
			if req.Limit > 0 {
				req.Limit = max(limits[req.Key], req.Permits)
			}
			mu.Unlock()
			return d.Acquire(ctx, req)
		}
	}()), []string{"NewestLimitCounts"}},
	"gives all permits back with one": {keepingBadly(func(d *counted) {
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			err := d.Release(ctx, c)
			if err == nil && c.Limit > 0 {
				d.locked(func() { d.s.Drop(c.Key) })
			}
			return err
		}
	}), []string{"PermitsSentTwice", "WeightsCount", "PermitsLinearizable"}},
	"never gives permits back": {keepingBadly(func(d *counted) {
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error {
			if c.Limit > 0 {
				return nil
			}
			return d.Release(ctx, c)
		}
	}), []string{"PermitsSurviveFaults", "PermitsSentTwice", "ReadersOfProcessesShare", "PermitsLinearizable", "PermitsLinearizableUnderFaults"}},
	"grants a lock beside permits": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if !a.Granted && req.Limit == 0 && err == nil {
			d.locked(func() { delete(d.s.Locks, req.Key) })
			return d.Acquire(ctx, req)
		}
		return a, err
	}), []string{"PermitsAndLocksExclude", "LockComesBehindABid"}},
	"gives all permits one token": {takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if a.Granted && req.Limit > 0 {
			a.Token = 7
		}
		return a, err
	}), []string{"PermitsHaveTokens", "PermitsLinearizable"}},
}
