package locker

import (
	"testing"
	"testing/synctest"
	"time"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wantClosedAt waits for c, and says when it has to be closed.
func (b *bench) wantClosedAt(c <-chan struct{}, at time.Duration, why string) {
	b.t.Helper()
	<-c
	wantBetween(b.t, "closed at", b.at(), at, at, why)
}

// Where renewals fail, AtRisk closes when half of the validity is over, and a third of the TTL
// before the Deadline at the latest.
func TestAtRisk(t *testing.T) {
	const ttl = 30 * time.Second // validity 29.698 s
	for name, c := range map[string]struct {
		opts   []LockOption
		every  time.Duration // WithRenewInterval; 0: the default
		renew  step
		at     time.Duration
		events int
	}{
		"renewals fail":             {nil, 0, fail(errReset), 14849 * time.Millisecond, 1},
		"renewals hang":             {nil, 0, hang, 14849 * time.Millisecond, 1},
		"rare renewals":             {nil, 19 * time.Second, fail(errReset), 19 * time.Second, 1},
		"rare renewals that hang":   {nil, 16 * time.Second, hang, 19 * time.Second, 1}, // the renewal at 16 s is given up after 3 s
		"without renewal":           {[]LockOption{WithoutRenewal()}, 0, obey, 19698 * time.Millisecond, 0},
		"a margin":                  {[]LockOption{WithMargin(3 * time.Second)}, 0, hang, 13349 * time.Millisecond, 1},
		"the widest margin":         {[]LockOption{WithMargin(ttl / 2)}, 0, hang, 4698 * time.Millisecond, 1},
		"a margin, no renewal":      {[]LockOption{WithMargin(3 * time.Second), WithoutRenewal()}, 0, obey, 16698 * time.Millisecond, 0},
		"the last of some renewals": {[]LockOption{WithMaxRenewals(5)}, 0, hang, 14849 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := []Option{WithTTL(ttl)}
				if c.every > 0 {
					opts = append(opts, WithRenewInterval(c.every))
				}
				b := newBench(t, plain, opts...)
				b.store.from(opRenew, c.renew)
				l := b.lock(t.Context(), "k", c.opts...)
				b.wantClosedAt(l.AtRisk(), c.at, "that is the danger")
				if err := l.Err(); err != nil {
					t.Errorf("Err: %v, want nil: the lease is held", err)
				}
				if left := l.Deadline().Sub(b.start) - b.at(); left < ttl/3 && c.every == 0 {
					t.Errorf("%v left, want a third of the TTL at least", left)
				}
				<-l.Lost()
				synctest.Wait()
				if n := len(b.events()[EventAtRisk]); n != c.events {
					t.Errorf("%d events, want %d", n, c.events)
				}
			})
		})
	}
}

// A lease that is renewed in time is never at risk, whatever its TTL, margin and interval, and
// though each renewal takes a while.
func TestHealthyIsNotAtRisk(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, time.Second, 30 * time.Second, MaxTTL} {
		for _, margin := range []time.Duration{0, ttl / 10, ttl / 2} {
			for _, every := range []time.Duration{0, ttl / 10, ttl / 3} {
				synctest.Test(t, func(t *testing.T) {
					opts := []Option{WithTTL(ttl), WithMargin(margin)}
					if every > 0 && margin < ttl/2 {
						opts = append(opts, WithRenewInterval(every))
					}
					b := newBench(t, plain, opts...)
					b.store.from(opRenew, delay(min(ttl/40, time.Second), obey))
					l := b.lock(t.Context(), "k")
					atRisk := l.AtRisk()
					b.until(5 * ttl)
					if closed(atRisk) || closed(l.AtRisk()) {
						t.Errorf("TTL %v, margin %v, interval %v: at risk, want it healthy", ttl, margin, every)
					}
					b.unlock(l)
					b.until(8 * ttl)
					if closed(atRisk) || closed(l.AtRisk()) {
						t.Error("Unlock has closed AtRisk")
					}
				})
			}
		}
	}
}

// A lease that recovers stays held; AtRisk stays closed, and the event does not come again.
func TestAtRiskRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second))
		l := b.lock(t.Context(), "k")
		for round := range time.Duration(2) {
			b.store.from(opRenew, fail(errReset))
			b.until(round*time.Minute + 16*time.Second)
			if !closed(l.AtRisk()) {
				t.Error("AtRisk is open, want it closed")
			}
			b.store.from(opRenew, obey)
			b.until(round*time.Minute + time.Minute)
		}
		if err := l.Err(); err != nil {
			t.Errorf("Err: %v, want nil", err)
		}
		b.unlock(l)
		if n := len(b.events()[EventAtRisk]); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
	})
}

// All leases of one acquisition share AtRisk. A loss closes it, whatever caused it, and so does
// the first question of a process that was frozen.
func TestAtRiskOfSeveralLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second))
		l := b.lock(t.Context(), "k", WithMaxHold(time.Second))
		inner := b.lock(l.Context(t.Context()), "k")
		if l.AtRisk() != inner.AtRisk() {
			t.Error("the inner lease has another AtRisk")
		}
		b.wantClosedAt(l.AtRisk(), time.Second, "the lease is lost by its limit")
		if n := len(b.events()[EventAtRisk]); n != 0 {
			t.Errorf("%d events, want none: no renewal failed", n)
		}
		late := b.lock(t.Context(), "other", WithMaxHold(time.Second))
		<-late.Lost()
		if !closed(late.AtRisk()) {
			t.Error("AtRisk of a lost lease is open, want it closed")
		}
		var zero *Lease
		if !closed(zero.AtRisk()) {
			t.Error("AtRisk of no lease is open, want it closed")
		}
	})
}

// A lease that was handed over is at no risk any more, whatever becomes of its claim.
func TestAtRiskOfAHandedOverLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second), WithoutFencing(), WithHandOver(4, time.Second))
		first := b.lock(t.Context(), "k")
		before := first.AtRisk()
		next := b.locking(t.Context(), "k")
		b.unlock(first)
		l := next.wantLease(t)
		b.wantSent(opRelease, 0, "it is handed over")
		b.store.from(opRenew, fail(errReset))
		<-l.AtRisk()
		if closed(before) || closed(first.AtRisk()) {
			t.Error("AtRisk of the lease before is closed")
		}
		b.store.from(opRenew, obey)
		b.until(b.at() + time.Minute)
		b.unlock(l)
	})
}

// A caller that takes over a lock in danger learns of the danger at once.
func TestDangerIsHandedOver(t *testing.T) {
	const ttl, margin = 2 * time.Second, time.Second
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(ttl), WithoutFencing(), WithHandOver(4, time.Second))
		b.store.from(opRenew, fail(errReset))
		first, next := b.lock(t.Context(), "k", WithMargin(margin)), b.locking(t.Context(), "k", WithMargin(margin))
		<-first.AtRisk()
		b.until(400 * time.Millisecond) // more than half of the lease is left
		b.unlock(first)
		l := next.wantLease(t)
		b.wantSent(opRelease, 0, "it is handed over")
		if n := len(b.events()[EventAtRisk]); n != 2 {
			t.Errorf("%d events, want one for each lease", n)
		}
		b.wantClosedAt(l.AtRisk(), 400*time.Millisecond, "the danger is not over")
		b.store.from(opRenew, obey)
		b.until(time.Minute)
		b.unlock(l)
	})
}

// A process that was frozen until after the danger learns of it by its first question.
func TestAtRiskOfAFrozenProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second))
		l := b.lock(t.Context(), "k", WithoutRenewal())
		before := l.AtRisk()
		l.claim.s.mu.Lock()
		b.sched.Remove(&l.claim.entry) // nothing runs
		l.claim.s.mu.Unlock()
		b.until(20 * time.Second)
		if closed(before) {
			t.Fatal("AtRisk is closed though nothing runs")
		}
		if !closed(l.AtRisk()) {
			t.Error("AtRisk is open, want it closed: the deadline is near")
		}
	})
}

// A lock that is kept without a lease reports no danger.
func TestAtRiskOfAKeptLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSticky(t, time.Second, WithTTL(MinTTL), WithRenewInterval(MinTTL*9/10))
		l := s.lock(t.Context(), "k")
		atRisk := l.AtRisk()
		synctest.Wait() // it listens
		s.unlock(l)
		s.until(MinTTL * 8 / 10)
		if s.store.held("k") == "" {
			t.Fatal("it is not kept any more")
		}
		if closed(atRisk) || closed(l.AtRisk()) {
			t.Error("AtRisk of a lease that was unlocked is closed")
		}
		if n := len(s.events()[EventAtRisk]); n != 0 {
			t.Errorf("%d events of a lock that nobody has", n)
		}
	})
}

// After a hand-over the next tenure has an AtRisk of its own.
func TestAtRiskAfterHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(30*time.Second), WithoutFencing(), WithHandOver(4, time.Second))
		first := b.lock(t.Context(), "k", WithMargin(time.Second))
		before := first.AtRisk()
		other := b.locking(t.Context(), "k")
		next := b.locking(t.Context(), "k", WithMargin(time.Second))
		b.unlock(first)
		l := other.wantLease(t) // another margin does not suit
		b.wantSent(opRelease, 1, "the claim has a margin that the first waiter did not ask for")
		b.unlock(l)
		l = next.wantLease(t)
		b.store.from(opRenew, fail(errReset))
		<-l.AtRisk()
		if closed(before) || closed(first.AtRisk()) {
			t.Error("AtRisk of the lease before is closed, want its own")
		}
		b.store.from(opRenew, obey)
		b.until(b.at() + time.Minute)
		b.unlock(l)
	})
}

// The Deadline is earlier by the margin, also after renewals; nobody else is granted the key
// for as long after it, not even if the holder unlocks what it has lost.
func TestMargin(t *testing.T) {
	const ttl, margin = 10 * time.Second, 4 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(ttl))
		l := b.lock(t.Context(), "k", WithMargin(margin))
		if d := l.Deadline().Sub(b.start); d != 5898*time.Millisecond {
			t.Errorf("Deadline after %v, want 5.898s", d)
		}
		b.until(7 * time.Second) // with renewals each 2.2 s
		b.store.from(opRenew, fail(errReset))
		sent := b.wantSent(opRenew, 3, "a renewal comes well before the danger")
		end := sent[2].at + 5898*time.Millisecond
		if d := l.Deadline().Sub(b.start); d != end {
			t.Errorf("Deadline at %v after the renewal, want %v", d, end)
		}
		b.wantClosedAt(l.Lost(), end, "that is the deadline")
		wantErr(t, l.Unlock(t.Context()), ErrLost, "Unlock")
		next := b.lock(t.Context(), "k")
		if b.at() < end+margin {
			t.Errorf("the next holder came at %v, want it %v after %v", b.at(), margin, end)
		}
		b.unlock(next)
	})
}

// Without a margin nothing else changes: by default a lease is renewed each third of its TTL.
func TestIntervals(t *testing.T) {
	s := defaultSettings()
	for margin, want := range map[time.Duration]time.Duration{
		0:                10 * time.Second,
		time.Second:      10 * time.Second,
		15 * time.Second: 3523500 * time.Microsecond,
	} {
		c := s.call
		c.millis = uint32(margin.Milliseconds())
		if got := s.interval(&c); got != want {
			t.Errorf("interval with a margin of %v: %v, want %v", margin, got, want)
		}
	}
	_, err := New(newFake(), WithTTL(time.Second), WithMargin(500*time.Millisecond+1))
	wantErr(t, err, ErrInvalid, "a margin of more than half of the TTL")
}

// Unlock frees nothing within the margin, whatever has ended the lease before its Deadline.
func TestMarginAfterAnotherEnd(t *testing.T) {
	const ttl, margin = 10 * time.Second, 4 * time.Second
	for name, end := range map[string]func(b *bench) (*Lease, error){
		"a limit": func(b *bench) (*Lease, error) {
			return b.lock(b.t.Context(), "k", WithMargin(margin), WithMaxHold(time.Second)), nil
		},
		"Close": func(b *bench) (*Lease, error) {
			return b.lock(b.t.Context(), "k", WithMargin(margin)), b.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain, WithTTL(ttl))
				l := must(end(b))(t)
				b.until(6 * time.Second) // the Deadline was at 5.898 s
				wantErr(t, l.Unlock(t.Context()), ErrLost, "it is over")
				b.until(ttl - time.Millisecond)
				if b.store.held("k") == "" {
					t.Error("the key is free before the margin is over")
				}
				wantErr(t, l.Unlock(t.Context()), ErrNotHeld, "it was unlocked")
			})
		})
	}
}
