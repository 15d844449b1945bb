package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
)

// brokenCommands break what a driver promises of its commands, and what a Locker hides.
var brokenCommands = map[string]brokenStrategy{
	// Time.
	"rounds TTLs down": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = req.TTL.Truncate(100 * time.Millisecond)
		return d.Acquire(ctx, req)
	}), []string{"TakenUntilDeadline"}},
	"rounds TTLs down when it renews": {renewing(func(d *counting, ctx context.Context, c driver.Claim) (err error) {
		d.locked(func() {
			if _, held := d.s.Held(c); held != nil {
				held.Until = time.Now().Add(c.TTL.Truncate(100 * time.Millisecond))
				return
			}
			err = locker.ErrLost
		})
		return err
	}), []string{"TakenUntilDeadline"}},
	"does not extend a repeated acquisition": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (a driver.Answer, err error) {
		d.locked(func() {
			if l, held := d.s.Held(req.Claim); held != nil {
				a = driver.Answer{Granted: true, Token: l.Token}
			}
		})
		if a.Granted {
			return a, nil
		}
		return d.Acquire(ctx, req)
	}), []string{"AcquireAgain"}},
	"gives a repeated acquisition another token": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		d.locked(func() {
			if l, held := d.s.Held(req.Claim); held != nil {
				l.Token = 0
			}
		})
		return d.Acquire(ctx, req)
	}), []string{"AcquireAgain"}},
	"adds renewals up": {renewing(func(d *counting, ctx context.Context, c driver.Claim) (err error) {
		d.locked(func() {
			if _, held := d.s.Held(c); held != nil {
				held.Until = held.Until.Add(c.TTL)
				return
			}
			err = locker.ErrLost
		})
		return err
	}), []string{"RenewalsDoNotAddUp"}},
	"reports the whole TTL as what remains": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if a.Remaining > 0 {
			a.Remaining = time.Minute
		}
		return a, err
	}), []string{"RemainingIsLeft"}},
	"reports what remains in seconds": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		a.Remaining /= 1000
		return a, err
	}), []string{"RemainingIsLeft"}},
	"extends the lock of others by trying": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		if err == nil && !a.Granted {
			d.locked(func() {
				if l := d.s.Live(req.Key); l != nil {
					l.Claims[0].Extend(req.TTL)
				}
			})
		}
		return a, err
	}), []string{"TakenUntilDeadline", "AcquireAgain"}},
	"counts microseconds in 32 bits": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = time.Duration(uint32(req.TTL.Microseconds())) * time.Microsecond
		return d.Acquire(ctx, req)
	}), []string{"ShortAndLongTTLs"}},
	"has TTLs of a second at least, and says nothing of it": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		if req.TTL < time.Second {
			req.TTL = time.Hour // 0 s is for ever in many a store
		}
		return d.Acquire(ctx, req)
	}), []string{"ShortAndLongTTLs", "ExpiredIsLost"}},

	// The holder of a claim.
	"takes the owner for the holder": {impostors(func(id string, c driver.Claim, owner string) bool { return c.Owner == owner }), []string{"OnlyTheHolder"}},
	"compares the beginning of ids":  {impostors(func(id string, c driver.Claim, _ string) bool { return strings.HasPrefix(c.ID, id) }), []string{"OnlyTheHolder"}},
	"compares ids without case":      {impostors(func(id string, c driver.Claim, _ string) bool { return strings.EqualFold(c.ID, id) }), []string{"OnlyTheHolder"}},
	"cuts long ids": {near(func(d *nearby) {
		cut := func(c driver.Claim) driver.Claim {
			c.ID = c.ID[:min(len(c.ID), 255)]
			return c
		}
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			req.Claim = cut(req.Claim)
			return d.Acquire(ctx, req)
		}
		d.release = func(d fullDriver, ctx context.Context, c driver.Claim) error { return d.Release(ctx, cut(c)) }
		d.renew = func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error)) {
			claims = append([]driver.Claim(nil), claims...)
			for i := range claims {
				claims[i] = cut(claims[i])
			}
			d.Renew(ctx, claims, answer)
		}
	}), []string{"LongIDsAndOwners"}},
	"renews what has expired": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		d.locked(func() {
			if d.s.Live(c.Key) == nil {
				d.s.Put(c.Key, c.Owner, c.ID, c.Token, c.TTL)
			}
		})
		return d.renewOne(ctx, c)
	}), []string{"ExpiredIsLost", "OnlyTheHolder"}},
	"releases what is free": {releasing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := d.Release(ctx, c)
		free := false
		d.locked(func() { free = d.s.Live(c.Key) == nil })
		if free && errors.Is(err, locker.ErrLost) {
			return nil
		}
		return err
	}), []string{"ExpiredIsLost", "OnlyTheHolder"}},

	// Answers to a renewal.
	"answers renewals twice": {answering(func(renew func(func(int, error)), n int, answer func(int, error)) {
		renew(func(i int, err error) { answer(i, err); answer(i, nil) })
	}), []string{"RenewAnswersOnce"}},
	"answers renewals late": {answering(func(renew func(func(int, error)), n int, answer func(int, error)) {
		renew(func(i int, err error) {
			if i == n-1 {
				go func() { time.Sleep(20 * time.Millisecond); answer(i, err) }() // the bug: Renew has returned by then
				return
			}
			answer(i, err)
		})
	}), []string{"RenewAnswersOnce"}},
	"forgets an answer": {answering(func(renew func(func(int, error)), n int, answer func(int, error)) {
		renew(func(i int, err error) {
			if i < 100 { // as many as fit into a page
				answer(i, err)
			}
		})
	}), []string{"RenewAnswersOnce"}},
	"mixes answers up": {answering(func(renew func(func(int, error)), n int, answer func(int, error)) {
		renew(func(i int, err error) { answer(n-1-i, err) })
	}), []string{"RenewAnswersOnce"}},

	// Tokens.
	"reserves more tokens than it has": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		tokens := req.Tokens
		req.Tokens = min(tokens, 1)
		a, err := d.Acquire(ctx, req)
		if a.Granted && req.Fencing {
			d.locked(func() { // a counter, not a clock
				d.s.tokens[req.Key+" last"]++
				a.Token = d.s.tokens[req.Key+" last"]
			})
			a.Tokens = tokens
		}
		return a, err
	}), []string{"TokensAreReserved"}},

	// Wake-ups.
	"ends a Watch with its call": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, w.Close)
			return w, nil
		}
	}), []string{"WatchOutlivesItsCall"}},
	"signals only who listens": {near(func(d *nearby) {
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			if err != nil {
				return nil, err
			}
			return passOn(w, make(chan struct{})), nil // the bug: it holds none
		}
	}), []string{"WatchSignals"}},
	"has one Watch for all": {near(func(d *nearby) {
		var mu sync.Mutex
		var last driver.Watch
		d.watch = func(d fullDriver, ctx context.Context, key string) (driver.Watch, error) {
			w, err := d.Watch(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if last != nil {
				last.Close() // of another key
			}
			last = w
			return w, err
		}
	}), []string{"WatchesAreApart"}},
	"has one place for attempts that overlap": {placing(nil), []string{"WatchersOverlap"}},
	"ends its place by an attempt that is refused": {placing(func(d fullDriver, c driver.Claim) {
		_ = d.Release(context.Background(), c)
	}), []string{"WatchersOverlap"}},
}

// placing is a strategy whose attempts under a Watch ask for one claim, that of the first, until it is granted. late gets the
// claim when an attempt learns that another one was granted it meanwhile, and is refused; nil: it is granted, too.
func placing(late func(d fullDriver, c driver.Claim)) fake {
	return near(func(d *nearby) {
		var mu sync.Mutex
		places := make(map[string]string)
		d.acquire = func(d fullDriver, ctx context.Context, req driver.Request) (driver.Answer, error) {
			if !req.Wait {
				return d.Acquire(ctx, req)
			}
			mu.Lock()
			own := req
			if places[req.Key] == "" {
				places[req.Key] = req.ID
			}
			own.ID = places[req.Key]
			own.Owner = own.ID
			mu.Unlock()
			asked := time.Now()
			a, err := d.Acquire(ctx, own)
			if !a.Granted || own.ID == req.ID {
				return a, err
			}
			mu.Lock()
			taken := places[req.Key] != own.ID
			delete(places, req.Key)
			mu.Unlock()
			if taken && late != nil {
				late(d, own.Claim)
				return driver.Answer{}, nil
			}
			a.Claim, a.Since, a.TTL = own.ID, asked, req.TTL
			return a, err
		}
	})
}

// impostors is a strategy in which c is taken for the holder where is says so.
func impostors(is func(id string, c driver.Claim, owner string) bool) fake {
	holder := func(d *counting, c driver.Claim) driver.Claim {
		d.locked(func() {
			if l := d.s.Live(c.Key); l != nil && is(l.Claims[0].ID, c, l.Owner) {
				c.ID = l.Claims[0].ID
			}
		})
		return c
	}
	return with(func(d *counted) {
		d.renewEach = func(d *counting, ctx context.Context, c driver.Claim) error {
			return d.renewOne(ctx, holder(d, c))
		}
		d.release = func(d *counting, ctx context.Context, c driver.Claim) error { return d.Release(ctx, holder(d, c)) }
	})
}

// answering is a strategy whose answers to the renewal of n claims are changed.
func answering(f func(renew func(func(int, error)), n int, answer func(int, error))) fake {
	return near(func(d *nearby) {
		d.renew = func(d fullDriver, ctx context.Context, claims []driver.Claim, answer func(int, error)) {
			f(func(answer func(int, error)) { d.Renew(ctx, claims, answer) }, len(claims), answer)
		}
	})
}

// passedOn is a Watch whose signals come by c.
type passedOn struct {
	driver.Watch
	c    chan struct{}
	once sync.Once
	over chan struct{}
}

func passOn(w driver.Watch, c chan struct{}) *passedOn {
	return passSome(w, c, func() bool { return true })
}

// passSome is passOn for the signals that are heard.
func passSome(w driver.Watch, c chan struct{}, hears func() bool) *passedOn {
	p := &passedOn{Watch: w, c: c, over: make(chan struct{})}
	go func() {
		for {
			select {
			case _, ok := <-w.C():
				if !ok {
					return // the channel that is handed on stays open
				}
				if !hears() {
					continue
				}
				select {
				case p.c <- struct{}{}:
				default:
				}
			case <-p.over:
				return
			}
		}
	}()
	return p
}

func (p *passedOn) C() <-chan struct{} { return p.c }

func (p *passedOn) Close() {
	p.once.Do(func() { close(p.over) })
	p.Watch.Close()
}
