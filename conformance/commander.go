package conformance

import (
	"cmp"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
	"github.com/distlock/locker/internal/uuid"
)

// commander gives a driver commands without a Locker between, which would hide some of
// what the driver does: it looks again every second, and repeats what had no answer.
type commander struct {
	driver.Driver
	t   *T
	id  string // what the ids of its claims begin with
	ids atomic.Int64
}

// driver makes a driver, configured as locker.New does it and closed when the case ends.
func (t *T) driver() *commander {
	t.Helper()
	d, err := must[DriverMaker](t.h).NewDriver()
	t.NoError(err, "making a driver")
	return t.command(d)
}

func (t *T) drivers() (a, b *commander) { return t.driver(), t.driver() }

// command makes d ready for commands. It is closed when the case ends.
func (t *T) command(d driver.Driver) *commander {
	t.Helper()
	t.AtEnd(d.Close)
	return t.configure(d)
}

// configure is command for a driver that the case closes itself.
func (t *T) configure(d driver.Driver) *commander {
	t.Helper()
	of := &commander{Driver: d, t: t}
	s, err := configured(d, of.newID)
	t.NoError(err, "Configure")
	of.id = uuid.New(cmp.Or(s.IDVersion, 4)) + ":"
	return of
}

// configured configures d, if it is a [driver.Configurer], without options.
func configured(d driver.Driver, newID func() string) (driver.Settings, error) {
	c, ok := d.(driver.Configurer)
	if !ok {
		return driver.Settings{}, nil
	}
	return c.Configure(driver.Config{Logger: slog.New(slog.DiscardHandler), NodeChanged: func(string, error) {}, NewID: newID})
}

func (d *commander) newID() string { return d.id + strconv.FormatInt(d.ids.Add(1), 10) }

// claim makes a claim of a new id.
func (d *commander) claim(key string, ttl time.Duration) driver.Claim {
	id := d.newID()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl}
}

// try makes one attempt. If it is granted, the claim returned is the one that holds the key.
func (d *commander) try(c driver.Claim) (driver.Claim, driver.Answer) {
	d.t.Helper()
	ctx, cancel := d.t.Bounded(d.t.Context(), d.t.timing.Patience)
	defer cancel()
	a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: d.t.caps().Fencing})
	switch {
	case err != nil && d.t.caps().Quorum: // too few of its servers have answered in time
		d.t.transient("Acquire", err)
		_ = d.Release(ctx, c)
		return c, driver.Answer{}
	case err != nil:
		d.t.Fatalf("Acquire of %.60q: %v", c.Key, err)
	}
	if a.Granted {
		c.Token = a.Token
		if a.Claim != "" {
			c.ID = a.Claim
		}
	}
	return c, a
}

// grant returns a new claim that was granted a free key.
func (d *commander) grant(key string, ttl time.Duration) driver.Claim {
	d.t.Helper()
	c, _ := d.grantTo(d.claim(key, ttl))
	return c
}

func (d *commander) grantTo(c driver.Claim) (driver.Claim, driver.Answer) {
	d.t.Helper()
	held, a := d.try(c)
	// Keys that are left on a minority of a quorum may be in the way for a moment.
	for start := pace.Now(); d.t.caps().Quorum && !a.Granted && start.Took() < d.t.timing.PollWithin; {
		c.ID = d.newID()
		time.Sleep(time.Millisecond) // a server reports no event
		held, a = d.try(c)
	}
	if !a.Granted {
		d.t.Fatalf("Acquire of %.60q is refused, and nobody holds the key", c.Key)
	}
	return held, a
}

// refused checks that another claim is refused key.
func (d *commander) refused(key, why string) driver.Answer {
	d.t.Helper()
	c, a := d.try(d.claim(key, d.t.timing.TTL))
	if a.Granted {
		_ = d.Release(d.t.Context(), c)
		d.t.Fatalf("Acquire of %.60q is granted %s", key, why)
	}
	return a
}

// renew renews one claim, and returns the answer.
func (d *commander) renew(c driver.Claim) error {
	err := errors.New("Renew called answer for no index")
	d.Renew(d.t.Context(), []driver.Claim{c}, func(_ int, e error) { err = e })
	return err
}

// keeps checks that c holds its key.
func (d *commander) keeps(c driver.Claim, after string) {
	d.t.Helper()
	if err := d.renew(c); err != nil {
		d.t.Fatalf("after %s the holder's Renew fails: %v", after, err)
	}
}

// freeSoon checks that d is granted key within Timing.PollWithin, and gives it back: a
// waiter that could not say that it left may be offered the key first.
func (d *commander) freeSoon(key string) {
	d.t.Helper()
	d.t.Eventually(d.t.timing.PollWithin, "Acquire of a key that was released", func() bool {
		c, a := d.try(d.claim(key, time.Minute))
		if a.Granted {
			d.t.NoError(d.Release(d.t.Context(), c), "Release")
		}
		return a.Granted
	})
}

// free releases c, and checks that other is granted the key then.
func (d *commander) free(c driver.Claim, other *commander) {
	d.t.Helper()
	if err := d.Release(d.t.Context(), c); err != nil {
		d.t.Fatalf("Release of the holder's claim: %v", err)
	}
	next := other.grant(c.Key, d.t.timing.TTL)
	d.t.NoError(other.Release(d.t.Context(), next), "Release of the next holder's claim")
}

// lost checks that c does not hold its key for any command that only a holder may give.
func (d *commander) lost(c driver.Claim, who string) {
	d.t.Helper()
	for name, err := range map[string]error{"Renew": d.renew(c), "Release": d.Release(d.t.Context(), c)} {
		if !errors.Is(err, locker.ErrLost) {
			d.t.Fatalf("%s by %s: want an error that matches ErrLost, got: %s", name, who, err)
		}
	}
	if counter, ok := d.Driver.(driver.HoldCounter); ok {
		if err := counter.SetHolds(d.t.Context(), c, 2); !errors.Is(err, locker.ErrLost) {
			d.t.Fatalf("SetHolds by %s: want an error that matches ErrLost, got: %s", who, err)
		}
	}
}

// heldUntil checks that d is not granted key before until, and is soon after. It
// asks all the time, so that a moment in which the key is free is found.
func (d *commander) heldUntil(key string, until time.Time, ttl time.Duration) {
	d.t.Helper()
	early := until.Add(-margin(ttl))
	limit := time.Until(until) + d.t.timing.Granularity + d.t.timing.PollWithin
	for start := pace.Now(); ; time.Sleep(time.Millisecond) { // the end of a TTL in the store is no event
		c, a := d.try(d.claim(key, time.Minute))
		at := time.Now()
		switch {
		case a.Granted && at.Before(early):
			d.t.Fatalf("%.60q is granted to the next owner %v before the end of its TTL of %v: the store counts less than was asked for", key, until.Sub(at), ttl)
		case a.Granted:
			d.t.NoError(d.Release(d.t.Context(), c), "Release")
			return
		case start.Took() > limit:
			d.t.Fatalf("%.60q is held %v after the end of its TTL of %v", key, at.Sub(until), ttl)
		}
	}
}

// margin returns by how much clocks may differ within d: Deadline leaves that much.
func margin(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// uneven returns a TTL that is a multiple of nothing in which stores count, seconds or tenths,
// and nearer to the multiple of Granularity below.
func (tm Timing) uneven() time.Duration {
	return (tm.ShortTTL + tm.Granularity*2/5 + 88*time.Millisecond).Round(time.Millisecond)
}
