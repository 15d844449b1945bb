package otellocker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Each end of a Lock or TryLock has its outcome, and its time.
func TestAcquisitions(t *testing.T) {
	for _, c := range acquisitionCases {
		t.Run(c.outcome, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				err := c.do(b)
				require.Equal(t, c.outcome == "acquired", err == nil, "%v", err)
				set := attrs("locker.outcome", c.outcome)
				if c.failed {
					set = attrs("locker.outcome", c.outcome, "error.type", c.outcome)
				}
				b.want("locker.acquisitions", "{acquisition}", acquisitions(point(1, set)))
				b.want("locker.acquire.duration", "s", histogram(times(set, c.took)))
			})
		})
	}
}

func heldByAnother(b *bench) {
	other, err := b.store.New()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = other.Close() })
	_, err = other.Lock(b.t.Context(), "k")
	require.NoError(b.t, err)
}

var acquisitionCases = []struct {
	outcome string
	failed  bool
	took    time.Duration
	do      func(b *bench) error
}{
	{"acquired", false, 0, func(b *bench) error {
		_, err := b.Lock(b.t.Context(), "k")
		return err
	}},
	{"not_acquired", false, 0, func(b *bench) error {
		heldByAnother(b)
		_, err := b.TryLock(b.t.Context(), "k")
		return err
	}},
	{"not_acquired", false, 2 * time.Second, func(b *bench) error {
		heldByAnother(b)
		_, err := b.Lock(b.t.Context(), "k", locker.WithWait(2*time.Second))
		return err
	}},
	{"deadline_exceeded", false, 20 * time.Millisecond, func(b *bench) error {
		heldByAnother(b)
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := b.Lock(ctx, "k")
		return err
	}},
	{"canceled", false, 7 * time.Second, func(b *bench) error {
		heldByAnother(b)
		ctx, cancel := context.WithCancelCause(b.t.Context())
		time.AfterFunc(7*time.Second, func() { cancel(locker.ErrLost) }) // the cause is the caller's own
		_, err := b.Lock(ctx, "k")
		return err
	}},
	{"unavailable", true, 0, func(b *bench) error {
		b.driver.set(func() { b.driver.acquire = errRefused })
		_, err := b.TryLock(b.t.Context(), "k")
		return err
	}},
	{"conflict", true, 0, func(b *bench) error {
		b.driver.set(func() { b.driver.acquire = driver.ErrConflict })
		_, err := b.Lock(b.t.Context(), "k")
		return err
	}},
	{"invalid", true, 0, func(b *bench) error {
		b.driver.set(func() { b.driver.acquire = driver.ErrInvalid })
		_, err := b.Lock(b.t.Context(), "k")
		return err
	}},
	{"closed", true, 0, func(b *bench) error {
		require.NoError(b.t, b.Close())
		_, err := b.Lock(b.t.Context(), "k")
		return err
	}},
}

// Locking again under a lease that is lost is an outcome of its own.
func TestAcquisitionUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lease := b.lock(t.Context(), "k", locker.WithMaxHold(time.Second))
		time.Sleep(time.Second) // on the bubble's clock
		_, err := b.Lock(locker.ContextWithOwner(lease.Context(t.Context()), "ann"), "other")
		require.ErrorIs(t, err, locker.ErrNotAcquired, "the context has ended with the lease")
		_, err = b.Lock(lease.Context(t.Context()), "k")
		require.ErrorIs(t, err, locker.ErrLost)
		b.want("locker.acquisitions", "{acquisition}", acquisitions(
			point(1, attrs("locker.outcome", "acquired")),
			point(1, attrs("locker.outcome", "canceled")),
			point(1, attrs("locker.outcome", "lost", "error.type", "lost"))))
	})
}

// The gauge of held leases goes up with each grant, and down with each end, of whatever kind; re-entry
// counts for nothing. How long it was held is recorded with the end.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		held := func(n int64) {
			t.Helper()
			b.want("locker.lease.held", "{lease}", level(point(n, attrs())))
		}
		released, lost, left := b.lock(t.Context(), "released"), b.lock(t.Context(), "lost", locker.WithMaxHold(4*time.Second)), b.lock(t.Context(), "left")
		again := b.lock(released.Context(t.Context()), "released")
		held(3)
		time.Sleep(300 * time.Millisecond) // on the bubble's clock
		require.NoError(t, again.Unlock(t.Context()))
		held(3)
		require.NoError(t, released.Unlock(t.Context()))
		held(2)
		time.Sleep(5 * time.Second) // on the bubble's clock
		require.ErrorIs(t, lost.Unlock(t.Context()), locker.ErrLost)
		held(1)
		b.driver.set(func() { b.driver.release = &driver.StoreError{Err: errRefused, Permanent: true} })
		require.ErrorIs(t, left.Unlock(t.Context()), locker.ErrUnavailable)
		held(0)
		b.want("locker.releases", "{release}", counts(point(1, attrs("locker.outcome", "released")),
			point(1, attrs("locker.outcome", "release_failed", "error.type", "unavailable"))))
		require.NoError(t, b.lock(t.Context(), "expiring").LetExpire())
		held(0)
		b.want("locker.hold.duration", "s", histogram(
			times(attrs("locker.outcome", "let_expire"), 0),
			times(attrs("locker.outcome", "released"), 300*time.Millisecond),
			times(attrs("locker.outcome", "lost", "error.type", "lost"), 4*time.Second),
			times(attrs("locker.outcome", "release_failed", "error.type", "unavailable"), 5300*time.Millisecond)))
	})
}

// A loss has its cause. The causes are recognised by the words of package locker: where these have
// changed, this fails.
func TestLosses(t *testing.T) {
	for cause, lose := range map[string]func(b *bench){
		"denied": func(b *bench) {
			b.lock(b.t.Context(), "k")
			b.store.Break("k")
		},
		"expired": func(b *bench) {
			b.lock(b.t.Context(), "k", locker.WithoutRenewal())
		},
		"expired in an outage": func(b *bench) {
			b.lock(b.t.Context(), "k")
			b.driver.set(func() { b.driver.renew = errRefused })
		},
		"max_hold": func(b *bench) {
			b.lock(b.t.Context(), "k", locker.WithMaxHold(time.Second))
		},
		"max_renewals": func(b *bench) {
			b.lock(b.t.Context(), "k", locker.WithMaxRenewals(1))
		},
		"closed": func(b *bench) {
			b.lock(b.t.Context(), "k")
			require.NoError(b.t, b.Close())
		},
	} {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				lose(b)
				time.Sleep(5 * time.Second) // on the bubble's clock
				if cause == "expired in an outage" {
					cause = "expired"
				}
				b.want("locker.lease.lost", "{lease}", losses(point(1, attrs("locker.loss.cause", cause))))
				b.want("locker.lease.held", "{lease}", level(point(0, attrs())))
			})
		})
	}
}

// A renewal is recorded with its outcome, and the time that the store took.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.driver.slow = 20 * time.Millisecond
		lease := b.lock(t.Context(), "k", locker.WithoutRenewal())
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Renew(t.Context()))
		b.driver.set(func() { b.driver.renew = errRefused })
		require.ErrorIs(t, lease.Renew(t.Context()), locker.ErrUnavailable)
		renewed, failed := attrs("locker.outcome", "renewed"), attrs("locker.outcome", "renew_failed", "error.type", "unavailable")
		b.want("locker.renewals", "{renewal}", counts(point(2, renewed), point(1, failed)))
		b.want("locker.renew.duration", "s", histogram(
			times(renewed, 20*time.Millisecond, 20*time.Millisecond),
			times(failed, 20*time.Millisecond)))
	})
}

// A lease that is in danger is counted once, and so is one that is asked for.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lease := b.lock(t.Context(), "k")
		client, _ := locker.ClientOf(b.Locker)
		for range 2 {
			require.NoError(t, client.RequestRelease(t.Context(), "k"))
		}
		b.driver.set(func() { b.driver.renew = errRefused })
		<-lease.AtRisk()
		b.want("locker.release.requests", "{request}", counts(point(1, attrs())))
		b.want("locker.lease.at_risk", "{lease}", counts(point(1, attrs())))
	})
}

// A Lock that waits, and a lock that is left to it, are counted.
func TestWaitsAndHandOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first := b.lock(t.Context(), "k")
		require.Empty(t, b.collected("locker.waits").Name, "nobody has waited")
		done := make(chan *locker.Lease)
		go func() {
			second, _ := b.Lock(t.Context(), "k")
			done <- second
		}()
		time.Sleep(10 * time.Millisecond) // of the lease's first 20, in which it may be handed over
		b.want("locker.waits", "{wait}", counts(point(1, attrs())))
		require.Empty(t, b.collected("locker.hand_overs").Name, "none yet")
		require.NoError(t, first.Unlock(t.Context()))
		require.NotNil(t, <-done)
		b.want("locker.hand_overs", "{hand_over}", counts(point(1, attrs())))
		b.want("locker.lease.held", "{lease}", level(point(1, attrs())))
	})
}

// Events that the Locker dropped are counted, and those it did not drop are, too.
func TestDroppedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		b := newBenchOn(t, func(o locker.Observer) locker.Observer {
			return locker.ObserverFunc(func(ctx context.Context, e locker.Event) {
				<-proceed
				o.Observe(ctx, e)
			})
		})
		const pairs = 1000
		for range pairs {
			require.NoError(t, b.lock(t.Context(), "k").Unlock(t.Context()))
		}
		close(proceed)
		synctest.Wait()
		require.NoError(t, b.lock(t.Context(), "k").Unlock(t.Context())) // its first event tells
		dropped := b.collected("locker.event.dropped")
		require.Equal(t, "{event}", dropped.Unit)
		told := func(name string) int64 {
			n := int64(0)
			for _, p := range b.collected(name).Data.(metricdata.Sum[int64]).DataPoints {
				n += p.Value
			}
			return n
		}
		holds := b.collected("locker.hold.duration").Data.(metricdata.Histogram[float64]).DataPoints[0].Count
		require.Positive(t, told("locker.event.dropped"))
		b.want("locker.lease.held", "{lease}", level(point(0, attrs())))
		require.EqualValues(t, 2*(pairs+1), told("locker.event.dropped")+told("locker.acquisitions")+int64(holds))
	})
}

// The first failure is to be an increase: each kind is 0 from the first event on.
func TestFailuresAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.lock(t.Context(), "k")
		b.want("locker.acquisitions", "{acquisition}", acquisitions(point(1, attrs("locker.outcome", "acquired"))))
		b.want("locker.lease.lost", "{lease}", losses())
		b.want("locker.renewals", "{renewal}", counts(point(0, attrs("locker.outcome", "renew_failed", "error.type", "unavailable"))))
		b.want("locker.releases", "{release}", counts(point(0, attrs("locker.outcome", "release_failed", "error.type", "unavailable"))))
		b.want("locker.event.dropped", "{event}", counts(point(0, attrs())))
	})
}
