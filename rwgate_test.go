package locker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newRW(t *testing.T, b *bench) *RWLock {
	t.Helper()
	rw, err := NewRWLock(b.Client, "k")
	if err != nil {
		t.Fatal(err)
	}
	return rw
}

func must(l *Lease, err error) func(*testing.T) *Lease {
	return func(t *testing.T) *Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// Readers are inside together, a writer alone; a reader that comes after a waiting writer
// waits for it.
func TestRWLockTakesTurns(t *testing.T) {
	for _, k := range []kind{plain, counting} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, k)
			rw := newRW(t, b)
			ctx := t.Context()
			first := must(rw.RLock(ctx))(t)
			other := must(rw.RLock(ctx))(t)
			writer := b.begin(func() (*Lease, error) { return rw.Lock(ctx) })
			b.until(time.Second)
			reader := b.begin(func() (*Lease, error) { return rw.RLock(ctx) })
			b.until(2 * time.Second)
			b.unlock(first)
			b.until(3 * time.Second)
			if writer.over() || reader.over() {
				t.Fatalf("a reader is inside: writer %v, later reader %v", writer.over(), reader.over())
			}
			b.unlock(other)
			w := writer.wantLease(t)
			if w.Token() <= first.Token() {
				t.Errorf("token %d after %d", w.Token(), first.Token())
			}
			b.until(4 * time.Second)
			if reader.over() {
				t.Fatal("the writer is inside, and a reader")
			}
			b.wantHeld("k", "k:gate") // the reader is at the gate
			b.unlock(w)
			r := reader.wantLease(t)
			if r.Token() <= w.Token() {
				t.Errorf("token %d after %d", r.Token(), w.Token())
			}
			b.wantHeld("k")
			b.unlock(r)
			b.wantHeld()
		})
	}
}

func TestRWLockReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		rw := newRW(t, b)
		r, err := rw.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := r.Context(t.Context())
		writer := b.begin(func() (*Lease, error) { return rw.Lock(t.Context()) })
		again, err := rw.RLock(ctx) // though a writer waits
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range []context.Context{ctx, ContextWithOwner(ctx, "the owner")} {
			_, err = rw.Lock(ctx)
			wantErr(t, err, ErrInvalid, "a reader that waits for the readers")
			_, err = b.Lock(ctx, "k")
			wantErr(t, err, ErrInvalid, "a reader's lease is none for a plain Lock")
			_, err = b.TryLock(ctx, "k")
			wantErr(t, err, ErrInvalid, "a reader's lease is none for a plain Lock")
			inner, err := rw.RLock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			b.unlock(inner)
		}
		b.unlock(again)
		b.unlock(r)
		w := writer.wantLease(t)
		ctx = w.Context(t.Context())
		for _, lock := range []func(context.Context, ...LockOption) (*Lease, error){rw.Lock, rw.RLock} {
			inner, err := lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if inner.Owner() != w.Owner() {
				t.Errorf("owner %q, under %q", inner.Owner(), w.Owner())
			}
			b.unlock(inner)
		}
		b.unlock(w)
		b.wantHeld()
	})
}

// The wait is that of the whole call, and what it has is given back.
func TestRWLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		rw := newRW(t, b)
		gate, room := b.lock(t.Context(), "k:gate"), b.lock(t.Context(), "k")
		call := b.begin(func() (*Lease, error) { return rw.RLock(t.Context(), WithWait(3*time.Second)) })
		b.until(2 * time.Second)
		b.unlock(gate)
		call.wantEnd(t, 3*time.Second, 3*time.Second, "WithWait counts from the call")
		wantErr(t, call.err, ErrNotAcquired, "the key is held")
		b.wantHeld("k")
		_, err := rw.Lock(t.Context(), WithWait(0))
		wantErr(t, err, ErrNotAcquired, "the key is held")
		b.wantHeld("k")
		b.unlock(room)
	})
}

// No reader's limit ends the lease that it shares with others.
func TestReadersHaveNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithMaxHold(time.Second), WithoutRenewal(), WithTTL(time.Second))
		rw := newRW(t, b)
		for _, o := range []LockOption{WithMaxHold(time.Second), WithoutRenewal(), WithMaxRenewals(1)} {
			_, err := rw.RLock(t.Context(), o)
			wantErr(t, err, ErrInvalid, "a limit")
		}
		first := must(rw.RLock(t.Context()))(t)
		b.until(time.Minute)
		if first.Err() != nil {
			t.Error(first.Err())
		}
		b.unlock(first)

		room := b.lock(t.Context(), "k", WithMaxHold(time.Hour), WithRenewal())
		writer := b.begin(func() (*Lease, error) { return rw.Lock(t.Context(), WithoutRenewal()) })
		b.until(2 * time.Minute)
		b.wantHeld("k", "k:gate") // for which its limits do not count
		b.unlock(room)
		b.unlock(writer.wantLease(t))
		b.wantHeld()
	})
}

// A named owner re-enters, whoever waits at the gate. The readers' name is no user's.
func TestNamedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		rw := newRW(t, b)
		ctx := ContextWithOwner(t.Context(), "ann")
		w := must(rw.Lock(ctx))(t)
		reader := b.begin(func() (*Lease, error) { return rw.RLock(t.Context()) })
		for _, lock := range []func(context.Context, ...LockOption) (*Lease, error){rw.Lock, rw.RLock} {
			b.unlock(must(lock(ctx, WithWait(time.Second)))(t))
		}
		b.unlock(w)
		b.unlock(reader.wantLease(t))
		_, err := rw.Lock(ContextWithOwner(t.Context(), readers))
		wantErr(t, err, ErrInvalid, "the readers' name")
		_, err = b.Lock(ContextWithOwner(t.Context(), readers), "k")
		wantErr(t, err, ErrInvalid, "the readers' name")
		b.wantHeld()
	})
}

// Attempts without a wait do not fail for want of their turn at the gate.
func TestTriesPassTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		gate := b.lock(t.Context(), "k:gate")
		rw := newRW(t, b)
		b.unlock(must(rw.RLock(t.Context(), WithWait(0)))(t))
		b.unlock(must(rw.Lock(t.Context(), WithWait(0)))(t))
		b.unlock(must(rw.TryLock(t.Context(), WithWait(time.Hour)))(t))
		r := must(rw.TryRLock(t.Context()))(t)
		_, err := rw.TryLock(t.Context())
		wantErr(t, err, ErrNotAcquired, "a reader is inside")
		b.unlock(r)
		b.unlock(gate)
	})
}

// A call's unbounded wait undoes the Locker's bound at the gate, too.
func TestGateWaitsAsTheCallSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithWait(time.Second))
		gate := b.lock(t.Context(), "k:gate")
		rw := newRW(t, b)
		call := b.begin(func() (*Lease, error) { return rw.RLock(t.Context(), WithUnboundedWait()) })
		b.until(time.Minute)
		b.unlock(gate)
		b.unlock(call.wantLease(t))
	})
}

// The error of a wait that is over tells the wait that was asked for.
func TestWaitIsToldAsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		gate, room := b.lock(t.Context(), "k:gate"), b.lock(t.Context(), "k")
		rw := newRW(t, b)
		call := b.begin(func() (*Lease, error) { return rw.Lock(t.Context(), WithWait(3*time.Second)) })
		b.until(time.Second)
		b.unlock(gate)
		<-call.done
		wantErr(t, call.err, ErrNotAcquired, "the key is held")
		if !strings.Contains(call.err.Error(), "not within 3s") {
			t.Errorf("the wait was 3 s: %v", call.err)
		}
		b.unlock(room)
	})
}

// A reader's options are judged by the TTL of its Locker.
func TestReadersOptionsAreTheLockers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Minute))
		b.unlock(must(newRW(t, b).RLock(t.Context(), WithMargin(20*time.Second)))(t))
	})
}
