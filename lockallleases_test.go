package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeasesAreLostTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithTTL(3*time.Second))
		all := b.lockAll(t.Context(), "a", "b", "c")
		ctx, lost := all.Context(t.Context()), all.Lost()
		if d := all.Deadline(); !d.Equal(all.Lease("a").Deadline()) || d.After(time.Now().Add(3*time.Second)) {
			t.Errorf("the deadline is in %v", time.Until(d))
		}
		inner, err := LockAll(ctx, b.Client, []string{"c", "a"})
		if err != nil {
			t.Fatalf("re-entry: %v", err)
		}
		if err := inner.Unlock(ctx); err != nil || ctx.Err() != nil || all.Err() != nil {
			t.Errorf("the inner Unlock is no end: %v, %v, %v", err, ctx.Err(), all.Err())
		}
		b.store.free("b")
		<-lost
		synctest.Wait()
		wantErr(t, ctx.Err(), ErrLost, "b is lost")
		wantErr(t, all.Err(), ErrLost, "b is lost")
		wantErr(t, all.Unlock(ctx), ErrLost, "b is lost")
		b.wantHeld()
		<-all.Lost()
	})
}

// The context of the set, which ends with the first of its leases, is fit for Unlock.
func TestLeasesUnlockUnderTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		b.store.from(opRelease, replyAfter(time.Second))
		for range 100 { // its goroutines begin in any order
			all := b.lockAll(t.Context(), "a", "b", "c")
			if err := all.Unlock(all.Context(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		b.wantHeld()
	})
}

// After an Unlock without an answer for some, another gives back the rest.
func TestLeasesUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		all := b.lockAll(t.Context(), "a", "b", "c")
		b.store.next(opRelease, obey, hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, all.Unlock(ctx), ErrUnavailable, "one release has no answer", ErrNotHeld)
		if err := all.Unlock(t.Context()); err != nil {
			t.Errorf("the second Unlock: %v", err)
		}
		b.wantHeld()
		wantErr(t, all.Unlock(t.Context()), ErrNotHeld, "all are given back")
	})
}
