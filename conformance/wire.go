package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// wireCases have a proxy between the driver and its store. An [Injector] is in front of the
// driver, and never shows how the driver itself minds contexts and broken connections.
var wireCases = group("wire", []Case{
	{Name: "FrozenCommandsEnd", Rules: []string{"R16", "R17"}, Needs: Capabilities{Wired: true}, Test: testFrozenCommandsEnd,
		Contract: "while nothing gets to the store or back each command returns an error soon after its context ends, by cancellation or by its deadline, and works when the link does"},
	{Name: "FrozenWatchEnds", Rules: []string{"R16"}, Needs: Capabilities{Wired: true, Notified: true}, Test: testFrozenWatchEnds,
		Contract: "while nothing gets to the store or back Watch returns soon after its context ends, and so do a Watch's Close and the driver's"},
	{Name: "LostAnswerIsUnknown", Rules: []string{"R17", "R19"}, Needs: Capabilities{Wired: true}, Test: testLostAnswerIsUnknown,
		Contract: "a command that was applied and whose connection broke before the answer is no success, no refusal, no loss, and not said to be NotApplied or Permanent"},
	{Name: "RefusedIsTransient", Rules: []string{"R17"}, Needs: Capabilities{Wired: true}, Test: testRefusedIsTransient,
		Contract: "while the store takes no connections commands fail with errors that are neither Permanent nor ErrLost, and work when it does again"},
	{Name: "CutReconnects", Rules: []string{"R11", "R17"}, Needs: Capabilities{Wired: true}, Test: testCutReconnects,
		Contract: "after all connections broke the driver makes new ones by itself, and no claim is lost"},
	{Name: "SignalsAfterCut", Rules: []string{"R15"}, Needs: Capabilities{Wired: true, Notified: true}, Test: testSignalsAfterCut,
		Contract: "a Watch whose connection broke signals again some time later, or closes its channel: it is not silent for good"},
})

// wire makes a driver that reaches the store by a proxy.
func (t *T) wire() (*faultproxy.Proxy, *commander) {
	t.Helper()
	p, d := t.unclosedWire()
	t.AtEnd(func() error {
		heal(p)
		return d.Close()
	})
	return p, d
}

func heal(p *faultproxy.Proxy) {
	p.Blackhole(false)
	p.Mute(false)
	p.Refuse(false)
}

// unclosedWire is wire for a case that closes the driver itself.
func (t *T) unclosedWire() (*faultproxy.Proxy, *commander) {
	t.Helper()
	h := must[Wired](t.h)
	p, err := faultproxy.NewPlain(h.StoreAddr())
	t.NoError(err, "starting a proxy")
	t.AtEnd(p.Close)
	d, err := h.NewDriverAt(p.Addr())
	t.NoError(err, "making a driver that uses a proxy")
	return p, t.configure(d)
}

// call is one command of a driver.
type call struct {
	name string
	op   func(ctx context.Context) error
}

// errGranted stands for an Acquire that was answered.
var errGranted = errors.New("it was granted")

// calls are all commands that d has, on claims that hold their keys. They can be given again.
func (d *commander) calls(held, released driver.Claim, free string) []call {
	all := []call{
		{"Acquire", func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Claim: d.claim(free, d.t.timing.ShortTTL), Fencing: d.t.caps().Fencing})
			return err
		}},
		{"Renew", func(ctx context.Context) (err error) {
			err = errors.New("no answer")
			d.Renew(ctx, []driver.Claim{held}, func(_ int, e error) { err = e })
			return err
		}},
		{"Release", func(ctx context.Context) error { return d.Release(ctx, released) }},
	}
	if c, ok := d.Driver.(driver.HoldCounter); ok {
		all = append(all, call{"SetHolds", func(ctx context.Context) error { return c.SetHolds(ctx, held, 1) }})
	}
	if i, ok := d.Driver.(driver.Inspector); ok && d.t.caps().Admin {
		all = append(all, call{"Inspect", func(ctx context.Context) error { _, err := i.Inspect(ctx, held.Key); return err }},
			call{"Keys", func(ctx context.Context) (err error) {
				for _, err = range i.Keys(ctx, held.Key) {
					if err != nil {
						break
					}
				}
				return err
			}},
			call{"Break", func(ctx context.Context) error {
				return i.Break(ctx, driver.Holder{Key: released.Key, Held: true, ID: released.ID, Owner: released.Owner})
			}})
	}
	return all
}

// transient checks an error of a command that did not get through.
func (t *T) transient(what string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s returns no error; want one of a store that cannot be reached", what)
	}
	for _, kind := range []error{locker.ErrLost, locker.ErrConflict, locker.ErrInvalid} {
		if errors.Is(err, kind) {
			t.Fatalf("%s returns an error that matches %q: %v; want a plain one: nothing is known", what, kind, err)
		}
	}
	if driver.IsPermanent(err) {
		t.Fatalf("%s returns an error that is Permanent: %v; want one that trying again may help", what, err)
	}
}

// ending are contexts that end after a moment.
var ending = map[string]func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc){
	"was cancelled": func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	},
	"reached its deadline": context.WithTimeout,
}

// endsWith checks that op returns soon after its context ends, and returns its error.
func (t *T) endsWith(what string, end func(context.Context, time.Duration) (context.Context, context.CancelFunc), op func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := end(t.Context(), t.Timing().RenewEvery)
	defer cancel()
	var err error
	done := t.Go(func() { err = op(ctx) })
	<-ctx.Done()
	t.Ends(done, t.Timing().Prompt, what+": its end")
	return err
}

func testFrozenCommandsEnd(t *T) {
	for how, end := range ending {
		p, d := t.wire()
		other := t.driver()
		held, released := d.grant(t.Key("held "+how), time.Minute), d.grant(t.Key("released "+how), time.Minute)
		calls := d.calls(held, released, t.Key("free "+how))
		p.Blackhole(true)
		t.Together(len(calls), func(i int) {
			what := calls[i].name + " of a store that does not answer, whose context " + how
			t.transient(what, t.endsWith(what, end, calls[i].op))
		})
		p.Blackhole(false)
		t.Eventually(t.Timing().Patience, "Renew works when the link does", func() bool {
			err := d.renew(held)
			if err != nil {
				t.transient("Renew after a silence", err)
			}
			return err == nil
		})
		d.free(held, other)
	}
}

func testFrozenWatchEnds(t *T) {
	for how, end := range ending {
		p, d := t.wire()
		notifier, ok := d.Driver.(driver.Notifier)
		if !ok {
			t.Fatalf("Notified is claimed, and the driver is no driver.Notifier")
		}
		other, key := t.driver(), t.Key(how)
		c := other.grant(key, time.Minute)
		open := d.watch(t.Context(), key)
		p.Blackhole(true)
		what := "Watch of a store that does not answer, whose context " + how
		var w driver.Watch
		err := t.endsWith(what, end, func(ctx context.Context) (err error) {
			w, err = notifier.Watch(ctx, t.Key("another "+how))
			return err
		})
		if err == nil { // it had nothing to ask
			t.Prompt("the Close of a Watch of a store that does not answer", w.Close)
		}
		t.Prompt("the Close of a Watch of a store that does not answer", open.w.Close)
		heal(p)
		t.closesFrozen(key)
		t.NoError(other.Release(t.Context(), c), "Release")
		other.freeSoon(key)
	}
}

// closesFrozen closes a driver that was waiting for key, which is held.
func (t *T) closesFrozen(key string) {
	t.Helper()
	p, d := t.unclosedWire()
	w := d.watch(t.Context(), key)
	p.Blackhole(true)
	defer heal(p)
	t.Within(time.Second+t.Timing().Slack, "Close of a driver whose store does not answer", func() {
		w.w.Close()
		_ = d.Close()
	})
}

func testLostAnswerIsUnknown(t *T) {
	p, d := t.wire()
	other := t.driver()
	// send gives a command whose answer is lost.
	send := func(what string, op func(ctx context.Context) error) error {
		p.Mute(true)
		defer p.Mute(false)
		ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
		defer cancel()
		var err error
		done := t.Go(func() { err = op(ctx) })
		t.Sleep(t.Timing().RenewEvery) // for the command to arrive
		for over := false; !over; {    // it may be given once more by a connection made meanwhile
			p.Cut()
			select {
			case <-done:
				over = true
			case <-time.After(t.Timing().RenewEvery):
			}
		}
		t.transient(what+" that had no answer", err)
		return err
	}
	applied := func(what string, err error) {
		if !driver.MaybeApplied(err) {
			t.Fatalf("%s was applied, and its answer lost; the driver says that it was NotApplied: %v", what, err)
		}
	}
	for _, key := range []string{t.Key("a"), t.Key("b"), t.Key("c")} {
		// A connection has to be there, so that the command is sent.
		t.Eventually(t.Timing().Patience, "the driver reconnects", func() bool {
			c, a, err := d.attempt(key)
			return err == nil && a.Granted && d.Release(t.Context(), c) == nil
		})
		c := d.claim(key, time.Minute)
		err := send("Acquire", func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: t.caps().Fencing})
			return err
		})
		next, a := other.try(other.claim(key, time.Minute))
		if a.Granted {
			t.NoError(other.Release(t.Context(), next), "Release")
			continue // it did not arrive
		}
		applied("Acquire", err)
		_ = send("Renew", func(ctx context.Context) (err error) {
			d.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
			return err
		})
		err = send("Release", func(ctx context.Context) error { return d.Release(ctx, c) })
		if next, a = other.try(other.claim(key, time.Minute)); a.Granted {
			applied("Release", err)
			t.NoError(other.Release(t.Context(), next), "Release")
		}
	}
}

// attempt is try with an error that may be.
func (d *commander) attempt(key string) (driver.Claim, driver.Answer, error) {
	c := d.claim(key, time.Minute)
	ctx, cancel := d.t.Bounded(d.t.Context(), d.t.timing.Patience)
	defer cancel()
	a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: d.t.caps().Fencing})
	return c, a, err
}

func testRefusedIsTransient(t *T) {
	p, d := t.wire()
	held, released := d.grant(t.Key("held"), time.Minute), d.grant(t.Key("released"), time.Minute)
	p.Refuse(true)
	for _, c := range d.calls(held, released, t.Key("free")) {
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		t.transient(c.name+" of a store that takes no connections", c.op(ctx))
		cancel()
	}
	p.Refuse(false)
	t.recovers(d, held)
	t.recovers(d, released)
	d.free(held, t.driver())
}

// recovers checks that d can renew c again some time.
func (t *T) recovers(d *commander, c driver.Claim) {
	t.Helper()
	t.Eventually(t.Timing().Patience, "the driver reconnects", func() bool {
		err := d.renew(c)
		if err != nil {
			t.transient("Renew while connections are made anew", err)
		}
		return err == nil
	})
}

func testCutReconnects(t *T) {
	p, d := t.wire()
	c := d.grant(t.Key("k"), time.Minute)
	for range 3 {
		p.Cut() // while nothing is under way
		t.recovers(d, c)
		p.Mute(true) // and while a command waits for its answer
		under := t.Go(func() {
			if err := d.renew(c); err != nil {
				t.transient("Renew whose connection broke", err)
			}
		})
		t.Sleep(t.Timing().RenewEvery)
		p.Cut()
		p.Mute(false)
		t.Ends(under, t.Timing().Patience, "the end of a command whose connection broke")
		t.recovers(d, c)
	}
	p.Cut()
	// What it sends in that moment may be lost with the connection.
	t.Eventually(t.Timing().Patience, "a Release gets through", func() bool {
		err := d.Release(t.Context(), c)
		return err == nil || errors.Is(err, locker.ErrLost)
	})
	other := t.driver()
	other.free(other.grant(c.Key, time.Minute), other)
}

func testSignalsAfterCut(t *T) {
	p, d := t.wire()
	a := t.driver()
	held, watches := make([]driver.Claim, 3), make([]*watcher, 3)
	for i := range held {
		held[i] = a.grant(t.Key(string(rune('a'+i))), time.Minute)
		watches[i] = d.watch(t.Context(), held[i].Key)
		defer watches[i].w.Close()
	}
	cut := pace.Now()
	p.Cut()
	for i, w := range watches { // it may come back in its own time
		at := t.Timing().PollWithin * time.Duration(i+i+1) / time.Duration(2*len(watches)-1)
		t.Sleep(max(at-cut.Took(), 0))
		t.NoError(a.Release(t.Context(), held[i]), "Release")
		late, stop := pace.Timeout(t.Timing().WakeWithin)
		select {
		case <-w.w.C(): // a signal, or the channel is closed, and the Locker asks for another Watch
			stop()
			return
		case <-late:
		}
	}
	t.Fatalf("%v after its connection broke a Watch neither signals a release nor has closed its channel: waiters would find it out by looking, a second later each time", cut.Took())
}
