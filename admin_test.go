package locker

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// breaking is a driver that tells who holds a key, and breaks a lock; its answer is late.
type breaking struct {
	*fake
	fakeNotifier
	late time.Duration
}

func (d breaking) Inspect(_ context.Context, key string) (h driver.Holder, err error) {
	d.fake.locked(func() { h = d.fake.t.Inspect(key) })
	return h, nil
}

func (d breaking) Keys(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", errors.ErrUnsupported) }
}

func (d breaking) Break(_ context.Context, h driver.Holder) (err error) {
	d.fake.locked(func() {
		if err = d.fake.t.Break(h); err == nil {
			d.fake.t.Signal(h.Key)
		}
	})
	time.Sleep(d.late) // on the bubble's clock: the answer comes late
	return err
}

// ForceUnlock ends the Locker's own lease on the lock that it breaks, and none that follows.
func TestForceUnlockSparesTheNextGrant(t *testing.T) {
	for name, mine := range map[string]bool{"of another process": false, "of this Locker": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				d := breaking{f, fakeNotifier{f}, 50 * time.Millisecond}
				l, err := New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				b := &bench{t: t, Client: l, store: f, start: time.Now()}
				holds := l
				other, err := New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				if !mine {
					holds = other
				}
				ctx := ContextWithOwner(t.Context(), "nightly-job")
				held := must(holds.Lock(ctx, "k"))(t)
				waiter := l
				if mine {
					waiter = other
				}
				next := b.begin(func() (*Lease, error) { return waiter.Lock(ctx, "k") })
				h, err := l.Inspect(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if err := l.ForceUnlock(t.Context(), h); err != nil {
					t.Fatal(err)
				}
				if lost := lostIsClosed(held); lost != mine {
					t.Errorf("the lease that was broken is lost: %v, want %v: its Locker alone knows", lost, mine)
				}
				lease := next.wantLease(t)
				if err := lease.Err(); err != nil {
					t.Errorf("the grant that followed: %v, want nil", err)
				}
				b.unlock(lease)
				if owner := f.held("k"); owner != "" {
					t.Errorf("%q holds the key, want it free", owner)
				}
				wantErr(t, held.Unlock(t.Context()), ErrLost, "it was taken away")
			})
		})
	}
}
