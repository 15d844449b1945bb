package conformance

import (
	"context"
	"time"

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

// ending are contexts that end after a moment.
var ending = map[string]func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc){
	"was cancelled": func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	},
	"reached its deadline": context.WithTimeout,
}

// endsWith gives op some times, and checks that it returns soon after its context ends each time, and mostly at once.
// check gets each error.
func (t *T) endsWith(what string, end func(context.Context, time.Duration) (context.Context, context.CancelFunc), op func(ctx context.Context) error, check func(err error)) {
	t.Helper()
	times := make([]time.Duration, 5)
	for i := range times {
		func() {
			ctx, cancel := end(t.Context(), t.Timing().RenewEvery)
			defer cancel()
			var err error
			var returned pace.Moment
			done := t.Go(func() {
				err = op(ctx)
				returned = pace.Now()
			})
			<-ctx.Done()
			ended := pace.Now()
			t.Ends(done, t.Timing().Prompt, what+": its end")
			times[i] = returned.Since(ended)
			check(err)
		}()
	}
	t.Median("the time from the end of its context to the return of "+what, times, t.Timing().PromptMedian)
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
			t.endsWith(what, end, calls[i].op, func(err error) { t.unanswered(calls[i], what, err) })
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
		t.endsWith(what, end, func(ctx context.Context) error {
			w, err := notifier.Watch(ctx, t.Key("another "+how))
			if err == nil { // it had nothing to ask
				t.Prompt("the Close of a Watch of a store that does not answer", w.Close)
			}
			return err
		}, func(error) {})
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
