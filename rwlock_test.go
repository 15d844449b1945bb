package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Readers of all Lockers are inside together, a writer alone, in the order in which they came; each
// costs one command.
func TestReadersAndWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting)
		other := b.beside()
		rw := newRW(t, b)
		far, err := NewRWLock(other, "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		first := must(rw.RLock(ctx, WithMaxHold(time.Hour)))(t)
		second := must(far.RLock(ctx))(t)
		b.wantSent(opAcquire, 2, "one each")
		_, err = rw.TryLock(ctx)
		wantErr(t, err, ErrNotAcquired, "readers are inside")
		b.unlock(must(rw.TryRLock(ctx))(t))
		writer := b.begin(func() (*Lease, error) { return rw.Lock(ctx) })
		b.until(time.Second)
		_, err = rw.TryRLock(ctx)
		wantErr(t, err, ErrNotAcquired, "a writer waits")
		_, err = far.TryRLock(ctx)
		wantErr(t, err, ErrNotAcquired, "a writer of another Locker waits")
		reader := b.begin(func() (*Lease, error) { return far.RLock(ctx) })
		b.unlock(first)
		b.until(2 * time.Second)
		if writer.over() || reader.over() {
			t.Fatalf("a reader is inside: writer %v, later reader %v", writer.over(), reader.over())
		}
		b.unlock(second)
		w := writer.wantLease(t)
		if w.Token() <= second.Token() {
			t.Errorf("token %d after %d", w.Token(), second.Token())
		}
		b.until(3 * time.Second)
		if reader.over() {
			t.Fatal("the writer is inside, and a reader")
		}
		b.unlock(w)
		r := reader.wantLease(t)
		if r.Token() <= w.Token() {
			t.Errorf("token %d after %d", r.Token(), w.Token())
		}
		b.unlock(r)
		b.wantOut("k", 0)
	})
}

// A writer's lease, and a reader's, are re-entered by their contexts, and by a named owner in this
// process. A reader does not become a writer.
func TestReadersAndWritersReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permittingCounting)
		rw := newRW(t, b)
		ctx := t.Context()
		ann := ContextWithOwner(ctx, "ann")
		w := must(rw.Lock(ann))(t)
		reader := b.begin(func() (*Lease, error) { return rw.RLock(ctx) })
		for _, as := range []context.Context{ann, w.Context(ctx), ContextWithOwner(w.Context(ctx), "joe")} {
			b.unlock(must(rw.RLock(as, WithWait(time.Second)))(t))
			b.unlock(must(rw.Lock(as, WithWait(time.Second)))(t))
			b.unlock(must(rw.TryLock(as))(t))
		}
		_, err := b.Lock(ann, "k")
		wantErr(t, err, ErrInvalid, "the writer's lease is none for a plain Lock")
		b.unlock(w)
		b.unlock(reader.wantLease(t))
		r := must(rw.RLock(ann))(t)
		writer := b.begin(func() (*Lease, error) { return rw.Lock(ctx) })
		for _, as := range []context.Context{ann, r.Context(ctx), ContextWithOwner(r.Context(ctx), "joe")} {
			inner := must(rw.RLock(as, WithWait(time.Second)))(t) // though a writer waits
			if inner.Token() != r.Token() {
				t.Errorf("token %d, want that of the outer lease, %d", inner.Token(), r.Token())
			}
			b.unlock(inner)
			_, err := rw.Lock(as)
			wantErr(t, err, ErrInvalid, "a reader that waits for the readers")
			_, err = rw.TryLock(as)
			wantErr(t, err, ErrInvalid, "a reader that waits for the readers")
			_, err = b.Lock(as, "k")
			wantErr(t, err, ErrInvalid, "a reader that waits for the readers")
		}
		b.unlock(r)
		b.unlock(writer.wantLease(t))
		b.wantOut("k", 0)
		b.until(b.at() + 3*time.Second)
		b.wantIdle("all is given back")
	})
}

// The loss of a writer's lease is that of its owner's sections; a reader's is no other reader's.
func TestLostWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, permitting, WithTTL(time.Second))
		rw := newRW(t, b)
		ann := ContextWithOwner(t.Context(), "ann")
		w := must(rw.Lock(ann))(t)
		b.store.free("k")
		<-w.Lost()
		_, err := rw.RLock(ann)
		wantErr(t, err, ErrLost, "its outer section is not protected any more")
		_, err = rw.Lock(w.Context(t.Context()))
		wantErr(t, err, ErrLost, "its outer section is not protected any more")
		wantErr(t, w.Unlock(t.Context()), ErrLost, "it was lost")
		r := must(rw.RLock(ann))(t)
		b.store.free("k")
		<-r.Lost()
		b.unlock(must(rw.RLock(ann))(t))
		wantErr(t, r.Unlock(t.Context()), ErrLost, "it was lost")
		b.wantOut("k", 0)
	})
}

func TestRWLockRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, k := range []kind{plain, permitting} {
			b := newBench(t, k)
			rw := newRW(t, b)
			for what, err := range map[string]error{
				"no locker":     second(NewRWLock(nil, "k")),
				"a wrapper":     second(NewRWLock(b, "k")),
				"no key":        second(NewRWLock(b.Client, "")),
				"a bad key":     second(NewRWLock(b.Client, "locker:x")),
				"no ctx, read":  second(rw.RLock(noContext)),
				"no ctx, write": second(rw.Lock(noContext)),
				"option":        second(rw.Lock(t.Context(), WithWait(-1))),
				"zero reader":   second(new(RWLock).RLock(t.Context())),
				"zero writer":   second((*RWLock)(nil).Lock(t.Context())),
				"zero Do":       new(RWLock).Do(t.Context(), func(context.Context) error { return nil }),
				"no fn":         rw.RDo(t.Context(), nil),
			} {
				wantErr(t, err, ErrInvalid, what)
			}
		}
	})
}

// The loss of a lease that its reader has not unlocked keeps no other reader out.
func TestLostReaderKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(time.Second))
		rw := newRW(t, b)
		lost := must(rw.RLock(t.Context()))(t)
		b.store.free("k")
		<-lost.Lost()
		for _, opts := range [][]LockOption{nil, {WithWait(0)}} {
			b.unlock(must(rw.RLock(t.Context(), opts...))(t))
		}
		wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
		b.wantHeld()
	})
}

// A reader that comes between the loss and the end of the lost lease's contexts locks anew.
func TestReaderBetweenLossAndItsEnd(t *testing.T) {
	for name, opts := range map[string][]LockOption{"Lock": nil, "TryLock": {WithWait(0)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, plain)
				rw := newRW(t, b)
				lost := must(rw.RLock(t.Context()))(t)
				b.store.free("k")
				lost.claim.s.mu.Lock()
				after := lost.claim.lose(lossDenied, ErrDenied)
				lost.claim.s.mu.Unlock()
				<-lost.Lost()
				next := b.begin(func() (*Lease, error) { return rw.RLock(t.Context(), opts...) })
				after.run()
				b.unlock(next.wantLease(t))
				wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
				b.wantHeld()
			})
		})
	}
}

// A reader whose re-entry meets the loss of the lease takes the lock anew, as one that comes
// after it; a reader that re-enters by a context gets ErrLost.
func TestReaderMeetsTheLoss(t *testing.T) {
	for name, opts := range map[string][]LockOption{"Lock": nil, "TryLock": {WithWait(0)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, counting)
				rw := newRW(t, b)
				lost := must(rw.RLock(t.Context()))(t)
				b.store.next(opSetHolds, func(c *command) error { // the count that finds the loss
					c.f.free("k")
					return c.apply()
				})
				b.unlock(must(rw.RLock(t.Context(), opts...))(t))
				_, err := rw.RLock(lost.Context(t.Context()), opts...)
				wantErr(t, err, ErrLost, "its section is not protected any more")
				wantErr(t, lost.Unlock(t.Context()), ErrLost, "it was lost")
				b.wantHeld()
			})
		})
	}
}
