package locker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"testing/synctest"
)

func TestXNilLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &counted{fake: nf()}
		l, _ := New(f)
		defer l.Close()
		ctx := ContextWithOwner(t.Context(), "ann")
		a, _ := l.Lock(ctx, "k")
		f.onSet = func(ctx context.Context, n int) error { time.Sleep(10 * time.Millisecond); return ErrLost } // the store lost the key
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					t.Error("panic:", p)
				}
			}()
			b, err := l.Lock(ctx, "k")
			t.Log("TryLock:", b, err)
			if b == nil && err == nil {
				t.Error("nil, nil")
			}
		}()
		time.Sleep(5 * time.Millisecond)
		t.Log(a.Unlock(ctx))
		<-done
		time.Sleep(time.Second)
	})
}

func TestXEvents(t *testing.T) {
	f := nf()
	var acq, nacq, lost, rel atomic.Int64
	l, _ := New(f, WithLogger(slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))), WithObserver(ObserverFunc(func(e Event) {
		switch e.Kind {
		case EventAcquired:
			acq.Add(1)
		case EventNotAcquired:
			nacq.Add(1)
		case EventLost:
			lost.Add(1)
		case EventReleased:
			rel.Add(1)
		}
	})))
	for i := range 2000 {
		a, err := l.TryLock(t.Context(), fmt.Sprint(i), WithMaxHold(1))
		if err == nil {
			defer a.Unlock(t.Context())
		}
	}
	time.Sleep(300 * time.Millisecond)
	t.Log("attempts 2000; acquired", acq.Load(), "not", nacq.Load(), "lost", lost.Load())
	if acq.Load()+nacq.Load() != 2000 {
		t.Error("attempts are not Acquired + NotAcquired")
	}
	acq.Store(0)
	ctx := ContextWithOwner(t.Context(), "ann")
	for i := range 300 {
		other, _ := l.Lock(context.Background(), "k")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				a, err := l.Lock(ctx, "k")
				if err == nil {
					a.Unlock(ctx)
				}
			})
		}
		time.Sleep(time.Duration(i%3) * 100 * time.Microsecond)
		other.Unlock(ctx)
		wg.Wait()
	}
	t.Log("named: acquired", acq.Load(), "released", rel.Load())
	if acq.Load() != rel.Load() {
		t.Error("acquired != released")
	}
}

var _ = errors.New

func TestXNilLeaseCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &counted{fake: nf()}
		l, _ := New(f)
		defer l.Close()
		a, _ := l.Lock(t.Context(), "k")
		f.onSet = func(ctx context.Context, n int) error { time.Sleep(10 * time.Millisecond); return ErrLost }
		// the inner ctx is detached from the outer's cancellation but carries its lease
		inner := context.WithoutCancel(a.Context(t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			b, err := l.Lock(inner, "k")
			t.Log("Lock:", b, err)
			if b == nil && err == nil {
				t.Error("nil lease, nil error")
			}
		}()
		time.Sleep(5 * time.Millisecond)
		t.Log(a.Unlock(t.Context()))
		<-done
	})
}
