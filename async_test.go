package locker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLockAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		p := LockAsync(t.Context(), b, "k")
		<-p.Done()
		lease, err := p.Lease()
		if err != nil {
			t.Fatal(err)
		}
		p.Cancel() // it is taken
		b.wantHeld("k")

		waits := LockAsync(t.Context(), b, "k")
		b.until(time.Minute)
		select {
		case <-waits.Done():
			t.Error("granted while another holds the key")
		default:
		}
		waits.Cancel()
		_, err = waits.Lease()
		wantErr(t, err, ErrNotAcquired, "canceled")
		wantErr(t, err, context.Canceled, "canceled")

		untaken := LockAsync(t.Context(), b, "k")
		b.unlock(lease)
		<-untaken.Done()
		b.wantHeld("k")
		untaken.Cancel()
		b.wantHeld()
		_, err = untaken.Lease()
		wantErr(t, err, ErrNotAcquired, "canceled")

		gated := &gatedLocker{Locker: b, gate: make(chan struct{})}
		late := LockAsync(t.Context(), gated, "k")
		late.Cancel()
		close(gated.gate)
		_, err = late.Lease()
		wantErr(t, err, ErrNotAcquired, "canceled before it was granted")
		b.wantHeld()
	})
}

// gatedLocker grants when its gate is open, whether or not the caller is there.
type gatedLocker struct {
	Locker
	gate chan struct{}
}

func (l *gatedLocker) Lock(_ context.Context, key string, opts ...LockOption) (*Lease, error) {
	<-l.gate
	return l.Locker.Lock(context.Background(), key, opts...)
}

func TestLockAsyncRefuses(t *testing.T) {
	_, err := LockAsync(t.Context(), nil, "k").Lease()
	if !errors.Is(err, ErrInvalid) {
		t.Error(fmt.Errorf("no Locker: %w", err))
	}
}
