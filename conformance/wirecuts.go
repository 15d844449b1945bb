package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/conformance/faultproxy"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/test/pace"
)

// answerLoss is a driver whose commands lose their answers from the one after n on. A command may be several requests, of which the
// first changes nothing at the key.
type answerLoss struct {
	*commander
	p     *faultproxy.Proxy
	n     int
	other *commander
	keys  int
}

// lose runs op, whose command loses its answer from the one after d.n on. op reports whether the command was answered.
// While the command waits, carriedOut reports whether the store has carried it out. ok is true if it has, and err is
// then the error of op.
func (d *answerLoss) lose(what string, op func(ctx context.Context) (answered bool, err error), carriedOut func() bool) (ok bool, err error) {
	t := d.t
	t.Helper()
	muted, unmute := d.p.MuteAfter(d.n)
	defer unmute()
	ctx, cancel := t.Bounded(t.Context(), t.Timing().Patience)
	defer cancel()
	answered := false
	done := t.Go(func() { answered, err = op(ctx) })
	select {
	case <-muted:
		t.Sleep(t.Timing().RenewEvery) // a piece may be no answer: for the command to arrive
		ok = carriedOut()
	case <-done: // it was no more than n requests
	}
	for over := false; !over; { // it may be given once more by a connection made meanwhile
		d.p.Cut()
		select {
		case <-done:
			over = true
		case <-time.After(t.Timing().RenewEvery):
		}
	}
	if answered && d.n > 0 {
		return false, nil
	}
	t.transient(what+" that had no answer", err)
	return ok, err
}

// key returns a new one each time.
func (d *answerLoss) key() string {
	d.keys++
	return d.t.Key(fmt.Sprint(d.n, " ", d.keys))
}

// reconnected returns a new claim once it was granted: a connection is there then.
func (d *answerLoss) reconnected() (c driver.Claim) {
	d.t.Helper()
	d.t.Eventually(d.t.Timing().Patience, "the driver reconnects", func() bool {
		ctx, cancel := d.t.Bounded(d.t.Context(), d.t.Timing().Patience)
		defer cancel()
		c = d.claim(d.key(), time.Minute)
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: d.t.caps().Fencing})
		if c.Token = a.Token; a.Claim != "" {
			c.ID = a.Claim
		}
		return err == nil && a.Granted
	})
	return c
}

// isFree reports whether another driver is granted key.
func (d *answerLoss) isFree(key string) bool {
	d.t.Helper()
	c, a := d.other.try(d.other.claim(key, time.Minute))
	if a.Granted {
		d.t.NoError(d.other.Release(d.t.Context(), c), "Release")
	}
	return a.Granted
}

// each loses the answers to an Acquire, a Renew and a Release, and returns which of them were carried out.
func (d *answerLoss) each() (acquired, renewed, released bool) {
	applied := func(what string, err error) {
		if !driver.MaybeApplied(err) {
			d.t.Fatalf("%s was applied, and its answer lost; the driver reports it as NotApplied: %v", what, err)
		}
	}
	_ = d.Release(d.t.Context(), d.reconnected())
	c := d.claim(d.key(), time.Minute)
	acquired, err := d.lose("Acquire", func(ctx context.Context) (bool, error) {
		a, err := d.Acquire(ctx, driver.Request{Claim: c, Fencing: d.t.caps().Fencing})
		return a.Granted, err
	}, func() bool { return !d.isFree(c.Key) })
	if acquired {
		applied("Acquire", err)
	}
	_ = d.other.Release(d.t.Context(), c)

	c = d.reconnected()
	renewed, _ = d.lose("Renew", func(ctx context.Context) (answered bool, err error) {
		d.Renew(ctx, []driver.Claim{c}, func(_ int, e error) { err = e })
		return err == nil, err
	}, func() bool { return true })
	_ = d.other.Release(d.t.Context(), c)

	c = d.reconnected()
	released, err = d.lose("Release", func(ctx context.Context) (bool, error) {
		err := d.Release(ctx, c)
		return err == nil, err
	}, func() bool { return d.isFree(c.Key) })
	if released {
		applied("Release", err)
	}
	_ = d.other.Release(d.t.Context(), c)
	return acquired, renewed, released
}

func testLostAnswerIsUnknown(t *T) {
	other := t.driver()
	var acquired, renewed, released atomic.Bool
	t.Together(mostSteps, func(n int) {
		p, d := t.wire()
		a, b, c := (&answerLoss{commander: d, p: p, n: n, other: other}).each()
		acquired.CompareAndSwap(false, a)
		renewed.CompareAndSwap(false, b)
		released.CompareAndSwap(false, c)
	})
	for what, ok := range map[string]*atomic.Bool{"Acquire": &acquired, "Renew": &renewed, "Release": &released} {
		if !ok.Load() {
			t.Errorf("whichever answer of %s was lost, it was not carried out before: this case shows nothing of it", what)
		}
	}
}

func testRefusedIsTransient(t *T) {
	p, d := t.wire()
	held, released := d.grant(t.Key("held"), time.Minute), d.grant(t.Key("released"), time.Minute)
	p.Refuse(true)
	for _, c := range d.calls(held, released, t.Key("free")) {
		ctx, cancel := context.WithTimeout(t.Context(), t.Timing().ShortTTL)
		t.unanswered(c, c.name+" of a store that takes no connections", c.op(ctx))
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
	// A command that the driver sends in that moment may be lost with the connection.
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
	// A Watch may come back in its own time. A Locker looks meanwhile, and keeps its place in a queue by that.
	for ; cut.Took() < t.Timing().PollWithin; t.Sleep(t.Timing().PollWithin / 8) {
		for _, w := range watches {
			w.looks()
		}
	}
	for i, w := range watches {
		for again := true; again; {
			looked := time.Now()
			w.looks()
			w.drain()
			t.NoError(a.Release(t.Context(), held[i]), "Release")
			again = time.Since(looked) > time.Second // a Locker looks once a second: its place may be over
			late, stop := pace.Timeout(t.Timing().PollWithin)
			select {
			case <-w.w.C(): // a signal, or the channel is closed, and the Locker asks for another Watch
				again = false
			case <-late:
				if !again {
					t.Fatalf("%v after its connection broke Watch %d of %d neither signals a release nor has closed its channel: waiters would find it out by looking, a second later each time",
						cut.Took(), i+1, len(watches))
				}
				held[i] = a.grant(held[i].Key, time.Minute)
			}
			stop()
		}
	}
}

// looks makes another attempt, which may not get through, for a key that is held.
func (w *watcher) looks() {
	w.t.Helper()
	w.c = w.claim(w.c.Key, time.Minute)
	ctx, cancel := w.t.Bounded(w.t.Context(), w.t.timing.Patience)
	defer cancel()
	if a, err := w.Acquire(ctx, driver.Request{Claim: w.c, Fencing: w.t.caps().Fencing, Wait: true}); err == nil && a.Granted {
		w.t.Fatalf("Acquire is granted beside a holder")
	}
}
