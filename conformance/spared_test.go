package conformance_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// spared are sound strategies that cases have taken for broken ones, and those cases.
var spared = map[string]struct {
	fake
	passed []string
}{
	// As on a busy machine, where the goroutine that was granted a key runs late.
	"returns from Lock after the lease": {wrapping(wrapped{lock: returnsLate()}), []string{"IntervalsDisjoint"}},
	// As on a busy machine, where what is asked after a bid comes when that is void.
	"asks late after a bid": {asksLate(), []string{"BigRequestIsServed", "NothingIsKeptForNobody"}},
	// As a store does whose client's subscription is known to it, and has no TTL.
	"ends a subscription a moment later": {with(func(d *counted) {
		d.watch = func(d *counting, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil {
				return nil, err
			}
			name := "subscription of " + d.id + " to " + key
			d.locked(func() { d.s.garbage[name] = -1 })
			return lingeringWatch{w, func() { d.locked(func() { delete(d.s.garbage, name) }) }}, nil
		}
	}), []string{"KeysEndWithLocks", "CancelledWaiterLeavesNothing"}},
}

// returnsLate is a Lock whose short leases end before it returns, every other time: the next
// short lease is held by then.
func returnsLate() func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
	var mu sync.Mutex
	var late chan struct{} // of the Lock that returns late; nil if there is none
	return func(l locker.Locker, ctx context.Context, key string, opts ...locker.LockOption) (*locker.Lease, error) {
		lease, err := l.Lock(ctx, key, opts...)
		if err != nil || time.Until(lease.Deadline()) > time.Second {
			return lease, err
		}
		mu.Lock()
		if late != nil {
			close(late)
			late = nil
			mu.Unlock()
			return lease, nil
		}
		next := make(chan struct{})
		late = next
		mu.Unlock()
		select {
		case <-next:
			time.Sleep(10 * time.Millisecond) // for the next holder's Lock to return first
		case <-time.After(time.Second): // there is none
			mu.Lock()
			defer mu.Unlock()
			if late == next {
				late = nil
			}
		}
		return lease, nil
	}
}

// asksLate is a strategy in which, once for each key, the Request after a bid, by one that has not waited for long,
// arrives when the bid is over.
func asksLate() fake {
	var mu sync.Mutex
	bid, late := map[string]bool{}, map[string]bool{}
	return takingBadly(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		mu.Lock()
		stands := bid[req.Key] && !late[req.Key] && req.Waited < time.Second
		late[req.Key] = late[req.Key] || stands
		mu.Unlock()
		if stands {
			time.Sleep(driver.BidTime + 100*time.Millisecond) // the machine stands still
		}
		a, err := d.Acquire(ctx, req)
		mu.Lock()
		defer mu.Unlock()
		bid[req.Key] = bid[req.Key] || a.Bids
		return a, err
	})
}

// lingeringWatch is gone for good some time after its Close.
type lingeringWatch struct {
	driver.Watch
	gone func()
}

func (w lingeringWatch) Close() {
	w.Watch.Close()
	time.AfterFunc(300*time.Millisecond, w.gone)
}

func TestSpared(t *testing.T) {
	for name, s := range spared {
		for _, cn := range s.passed {
			t.Run(strings.ReplaceAll(name, " ", "-")+"/"+cn, func(t *testing.T) {
				t.Parallel()
				f := s.fake
				f.timing = selfTiming
				if r := record(t, caseNamed(t, cn), f); r.Failed() {
					t.Errorf("%s fails on a strategy that %s:\n%s", cn, name, r.Said())
				}
			})
		}
	}
}
