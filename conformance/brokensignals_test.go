package conformance_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/distlock/locker/internal/locktable"
	"github.com/distlock/locker/internal/test/pace"
)

// brokenSignals lose signals, change them, or say that they listen when they do not.
var brokenSignals = map[string]brokenStrategy{
	"sends signals nowhere": {sending(func(*counting, context.Context, driver.Signal) error { return nil }),
		[]string{"RequestArrives", "RequestArrivesAfterCut", "ForceUnlockArrives", "OddSignalsBreakNothing", "SignalOfNoClaimIsInvalid", "StickyGivesWay", "StickyHeedsRequests"}},
	"sends one signal only": {sending(func() func(*counting, context.Context, driver.Signal) error {
		sent := make(chan struct{}, 1)
		return func(d *counting, ctx context.Context, s driver.Signal) error {
			select {
			case sent <- struct{}{}:
				return d.Signal(ctx, s)
			default:
				return nil
			}
		}
	}()), []string{"RequestArrives", "RequestIsOfItsTime"}},
	"loses the kind of signals": {sending(func(d *counting, ctx context.Context, s driver.Signal) error {
		s.Kind = driver.SignalRequest
		return d.Signal(ctx, s)
	}), []string{"ForceUnlockArrives", "OddSignalsBreakNothing"}},
	"takes a key for a word": {sending(func(d *counting, ctx context.Context, s driver.Signal) error {
		s.Key, _, _ = strings.Cut(s.Key, " ")
		return d.Signal(ctx, s)
	}), []string{"RequestArrives"}},
	"sends signals to the Locker, whatever the claim": {sending(func(d *counting, ctx context.Context, s driver.Signal) error {
		if h, err := d.Inspect(ctx, s.Key); err == nil && h.Held {
			s.Claim = h.ID
		}
		return d.Signal(ctx, s)
	}), []string{"OddSignalsBreakNothing"}},
	"says too early that it listens": {signalling(func(d *signalled) {
		d.listen = func(d *counting, ctx context.Context, locker string) (driver.Listener, error) {
			late := &lateListener{c: make(chan driver.Signal), over: make(chan struct{})}
			go func() {
				time.Sleep(300 * time.Millisecond) // the bug: Listen has returned by then
				if l, err := d.Listen(context.Background(), locker); err == nil {
					late.pass(l)
				}
			}()
			return late, nil
		}
	}), []string{"RequestArrives", "ForceUnlockArrives"}},
	// On the suite's clock, so that they come too late however slow the machine is.
	"polls for signals once a second": {signalling(func(d *signalled) {
		d.listen = func(d *counting, ctx context.Context, locker string) (driver.Listener, error) {
			l, err := d.Listen(ctx, locker)
			if err != nil {
				return nil, err
			}
			late := &lateListener{c: make(chan driver.Signal), over: make(chan struct{}), by: time.Second}
			go late.pass(l)
			return late, nil
		}
	}), []string{"RequestArrives", "RequestIsOfItsTime", "ForceUnlockArrives"}},
	"polls for losses once a second": {signalling(func(d *signalled) { d.lossesLateBy = time.Second }), []string{"ChangedKeyIsNoticed"}},
	// Sticky leases.
	"says that it has asked": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		a, err := d.Acquire(ctx, req)
		a.Asked = err == nil && !a.Granted
		return a, err
	}), []string{"StickyGivesWay"}},
	"asks by a request of another kind": {sending(func(d *counting, ctx context.Context, s driver.Signal) error {
		if s.Kind == driver.SignalWaiting {
			s.Kind = '?'
		}
		return d.Signal(ctx, s)
	}), []string{"StickyGivesWay"}},
	"grants the TTL of other Lockers": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL = max(req.TTL, locker.DefaultTTL)
		return d.Acquire(ctx, req)
	}), []string{"StickyEndsSoon"}},
	"reserves tokens that the next grant gets": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		tokens := req.Tokens
		req.Tokens = min(tokens, 1)
		a, err := d.Acquire(ctx, req)
		if a.Granted && req.Fencing && tokens > 1 {
			a.Tokens, a.Token = tokens, a.Token+5*time.Second.Microseconds() // behind what is issued next
		}
		return a, err
	}), []string{"StickyPairs", "StickyGivesWay"}},
	"takes a signal for the truth": {signalling(func(d *signalled) {
		d.signal = func(d *counting, ctx context.Context, s driver.Signal) error {
			if s.Kind == driver.SignalBroken {
				saidBroken.Store(s.Claim, true)
			}
			return d.Signal(ctx, s)
		}
		d.renewEach = func(d *counting, ctx context.Context, c driver.Claim) error {
			if _, is := saidBroken.Load(c.ID); is {
				return locktable.ErrLost // the bug: the store was not asked
			}
			return d.renewOne(ctx, c)
		}
	}), []string{"OddSignalsBreakNothing"}},
	"sees no losses": {signalling(func(d *signalled) {
		d.watches = func(driver.Claim) bool { return false }
	}), []string{"ChangedKeyIsNoticed"}},
	"sees the losses of keys without braces": {signalling(func(d *signalled) {
		d.watches = func(c driver.Claim) bool { return !strings.ContainsAny(c.Key, "{}") }
	}), []string{"ChangedKeyIsNoticed"}},
	"takes renewals for losses": {renewing(func(d *counting, ctx context.Context, c driver.Claim) error {
		err := d.renewOne(ctx, c)
		d.s.changed(c.Key) // the bug: the holder has changed it
		return err
	}), []string{"DetectionAsksSeldom"}},
	"takes hold counts for losses": {with(func(d *counted) {
		d.setHolds = func(d *counting, ctx context.Context, c driver.Claim, n int) error {
			err := d.SetHolds(ctx, c, n)
			d.s.changed(c.Key)
			return err
		}
	}), []string{"DetectionAsksSeldom"}},
	"ends leases at half of their TTL": {acquiring(func(d *counting, ctx context.Context, req driver.Request) (driver.Answer, error) {
		req.TTL /= 2
		return d.Acquire(ctx, req)
	}), []string{"MarginKeepsOthersOut"}},
}

// saidBroken are claims of which a signal says that they were broken.
var saidBroken sync.Map

// lateListener passes on what another one hears.
type lateListener struct {
	c    chan driver.Signal
	over chan struct{}
	by   time.Duration // on the suite's clock
}

func (l *lateListener) C() <-chan driver.Signal { return l.c }
func (l *lateListener) Close()                  { close(l.over) }

func (l *lateListener) pass(from driver.Listener) {
	defer from.Close()
	for {
		select {
		case s := <-from.C():
			late, stop := pace.Timeout(l.by)
			select {
			case <-late:
			case <-l.over:
				stop()
				return
			}
			select {
			case l.c <- s:
			case <-l.over:
				return
			}
		case <-l.over:
			return
		}
	}
}

// signalled is a driver with the methods of a [driver.Signaller] replaced.
type signalled struct {
	counted
	listen func(d *counting, ctx context.Context, locker string) (driver.Listener, error)
	signal func(d *counting, ctx context.Context, s driver.Signal) error

	watches func(c driver.Claim) bool // says whose losses it sees; nil: all

	lossesLateBy time.Duration // on the suite's clock
}

func (d signalled) DetectLoss(ctx context.Context, changed func(driver.Signal)) (driver.LossWatch, error) {
	hears := changed
	if d.lossesLateBy > 0 {
		hears = func(s driver.Signal) { pace.After(d.lossesLateBy, func() { changed(s) }) }
	}
	w, err := d.counting.DetectLoss(ctx, hears)
	if d.watches == nil {
		return w, err
	}
	return blindLossWatch{w, d.watches}, err
}

// blindLossWatch watches some of the claims.
type blindLossWatch struct {
	driver.LossWatch
	watches func(c driver.Claim) bool
}

func (w blindLossWatch) Watch(ctx context.Context, more, less []driver.Claim) error {
	blind := func(c driver.Claim) bool { return !w.watches(c) }
	return w.LossWatch.Watch(ctx, slices.DeleteFunc(more, blind), slices.DeleteFunc(less, blind))
}

func (d signalled) Listen(ctx context.Context, locker string) (driver.Listener, error) {
	if d.listen != nil {
		return d.listen(d.counting, ctx, locker)
	}
	return d.counting.Listen(ctx, locker)
}

func (d signalled) Signal(ctx context.Context, s driver.Signal) error {
	if d.signal != nil {
		return d.signal(d.counting, ctx, s)
	}
	return d.counting.Signal(ctx, s)
}

func signalling(f func(d *signalled)) fake {
	v := fakeCounting
	v.fakeDriver = func(s *fakeStore) driver.Driver {
		d := signalled{counted: newCounted(s)}
		f(&d)
		return d
	}
	return v
}

func sending(signal func(d *counting, ctx context.Context, s driver.Signal) error) fake {
	return signalling(func(d *signalled) { d.signal = signal })
}
