package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// wrapped hides what it wraps.
type wrapped struct{ Locker }

// wrapping counts the Locks that go through it, and has Unwrap.
type wrapping struct {
	Locker
	locks int
}

func (w *wrapping) Lock(ctx context.Context, key string, opts ...LockOption) (*Lease, error) {
	w.locks++
	return w.Locker.Lock(ctx, key, opts...)
}

func (w *wrapping) Unwrap() Locker { return w.Locker }

func TestClientOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain)
		var none *Client
		for name, of := range map[string]struct {
			l    Locker
			want bool
		}{
			"a Client":             {b.Client, true},
			"a wrapper":            {&wrapping{Locker: b.Client}, true},
			"two wrappers":         {&wrapping{Locker: &wrapping{Locker: b.Client}}, true},
			"one that hides it":    {wrapped{b.Client}, false},
			"a wrapper of that":    {&wrapping{Locker: wrapped{b.Client}}, false},
			"a wrapper of nothing": {&wrapping{}, false},
			"nil":                  {nil, false},
			"a nil Client":         {none, false},
		} {
			if got, ok := ClientOf(of.l); ok != of.want || ok && got != b.Client {
				t.Errorf("%s: %v, %v, want the Client: %v", name, got, ok, of.want)
			}
		}
	})
}

// What is made of several Locks takes a wrapper's defaults from its Client, and locks through
// the wrapper.
func TestLocksThroughAWrapper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, plain, WithWait(time.Second))
		w := &wrapping{Locker: b.Client}
		rw, err := NewRWLock(w, "rw")
		if err != nil {
			t.Fatal(err)
		}
		l, err := rw.Lock(t.Context())
		if err != nil || w.locks != 2 {
			t.Fatalf("%v, %d Locks, want 2: the gate and the lock", err, w.locks)
		}
		_, err = rw.Lock(t.Context())
		wantErr(t, err, ErrNotAcquired, "it is locked")
		wantBetween(t, "it failed at", b.at(), time.Second, time.Second, "the wait is the Client's")
		b.unlock(l)
		s, err := NewSemaphore(w, "s", 1)
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(must(s.Acquire(t.Context()))(t))
		b.lock(t.Context(), "b")
		_, err = LockAll(t.Context(), w, []string{"a", "b"})
		wantErr(t, err, ErrNotAcquired, "b is locked")
		wantBetween(t, "it failed at", b.at(), 2*time.Second, 2*time.Second, "the wait is the Client's")
	})
}
