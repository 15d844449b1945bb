package locker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// asking is a driver that asks a holder with the command that looks who it is.
type asking struct {
	signalling
	asked   bool  // it says so
	trouble error // of Ask
	mute    error // of Signal
	signals *int  // sent one by one
}

func (d asking) Ask(ctx context.Context, key string) (driver.Holder, bool, error) {
	if d.trouble != nil {
		return driver.Holder{}, false, d.trouble
	}
	h, err := d.Inspect(ctx, key)
	return h, d.asked && h.Held, err
}

func (d asking) Signal(ctx context.Context, s driver.Signal) error {
	if d.mute != nil {
		return d.mute
	}
	*d.signals++
	return d.signalling.Signal(ctx, s)
}

// A request that went with the command is not sent once more; one that did not is.
func TestDriverThatAsks(t *testing.T) {
	for name, c := range map[string]struct {
		asked   bool
		trouble error
		mute    error
		signals int
		want    error
	}{
		"asks":           {true, nil, nil, 0, nil},
		"does not":       {false, nil, nil, 1, nil},
		"cannot":         {false, errors.ErrUnsupported, nil, 1, nil},
		"is in trouble":  {false, errReset, nil, 0, ErrUnavailable},
		"has no signals": {false, nil, errors.ErrUnsupported, 0, ErrInvalid},
		"may not signal": {false, nil, errNoPerm, 0, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSignalled(t)
				n := 0
				sender, err := New(asking{s.d, c.asked, c.trouble, c.mute, &n})
				if err != nil {
					t.Fatal(err)
				}
				defer sender.Close()
				l := s.lock(t.Context(), "k")
				asked := l.ReleaseRequested()
				err = sender.RequestRelease(t.Context(), "k")
				if !errors.Is(err, c.want) || n != c.signals {
					t.Errorf("%v and %d signals, want %v and %d", err, n, c.want, c.signals)
				}
				synctest.Wait()
				if closed(asked) != (c.signals > 0) {
					t.Errorf("requested: %v", closed(asked))
				}
				if c.trouble == nil {
					wantErr(t, sender.RequestRelease(t.Context(), "free"), ErrNotHeld, "a free key")
				}
				s.unlock(l)
			})
		})
	}
}

// A driver that panics while the store is asked about a claim takes nothing away.
func TestPanicWhileAClaimIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t, WithTTL(time.Hour))
		l := s.lock(t.Context(), "k")
		s.store.next(opRenew, func(*command) error { panic("a bug of the driver") })
		s.heard(driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: s.inspect("k").ID})
		synctest.Wait()
		s.wantSent(opRenew, 1, "the store is asked")
		if err := l.Err(); err != nil {
			t.Errorf("Err: %v, want nil", err)
		}
		s.unlock(l)
	})
}

// A Locker that breaks a lock of its own sends itself no signal.
func TestForceUnlockOfItsOwnSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		n := 0
		own, err := New(asking{s.d, false, nil, nil, &n})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		l, err := own.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := own.ForceUnlock(t.Context(), s.inspect("k")); err != nil || n != 0 {
			t.Errorf("%v, %d signals; want nil and none", err, n)
		}
		wantErr(t, l.Err(), ErrLost, "it was broken")
	})
}

// A lock WithoutRenewal that somebody says is broken is lost if another owner has it, and not if its owner has it by
// another claim: that may be a share beside its own.
func TestDoubtsAboutAnOwner(t *testing.T) {
	for owner, lost := range map[string]bool{"ann": false, "redis-py": true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSignalled(t)
			l := s.lock(ContextWithOwner(t.Context(), "ann"), "k", WithoutRenewal())
			id := s.inspect("k").ID
			s.store.seize("k", owner, time.Minute)
			s.heard(driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: id})
			synctest.Wait()
			if got := lostIsClosed(l); got != lost {
				t.Errorf("%s has it: lost %v, want %v", owner, got, lost)
			}
		})
	}
}

// The holders of permits cannot be asked, and what Inspect shows of the key says nothing of a claim of permits.
func TestSignalsAboutPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignalled(t)
		l, err := New(struct {
			signalling
			fakeKeeper
		}{s.d, fakeKeeper{s.store}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		sem, err := NewSemaphore(l, "k", 3)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := sem.Acquire(t.Context(), WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		l.heard(driver.Signal{Kind: driver.SignalBroken, Key: "k", Claim: lease.claim.ID})
		synctest.Wait()
		if err := lease.Err(); err != nil {
			t.Errorf("Err: %v, want nil: it has its permit", err)
		}
		err = s.other.RequestRelease(t.Context(), "k")
		if wantErr(t, err, ErrConflict, "permits"); !strings.Contains(err.Error(), "permits") || strings.Contains(err.Error(), ErrConflict.Error()) {
			t.Errorf("%v, want an error that says why", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
