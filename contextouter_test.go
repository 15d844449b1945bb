package locker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// cut leaves a command when the caller's context ends, and wraps that context's error, as a driver does. apply says
// that the command has reached the store.
func cut(apply bool) step {
	return func(c *command) error {
		if apply {
			_ = c.apply()
		}
		caller, _, _ := driver.Ends(c.ctx)
		<-caller.Done()
		return fmt.Errorf("the store has not answered: %w", caller.Err())
	}
}

// The loss of another lease, under whose context a command is sent, is not the store's word on the command's claim.
func TestUnderTheContextOfAnotherLostLease(t *testing.T) {
	type key struct{}
	for _, k := range []kind{plain, counting} {
		for _, what := range []string{"lock", "try", "unlock", "renew", "reenter"} {
			t.Run(fmt.Sprint(what, k), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, k)
					outer := b.lock(t.Context(), "a", WithTTL(time.Second), WithoutRenewal())
					under := context.WithValue(outer.Context(t.Context()), key{}, "a child")
					var l *Lease
					switch what {
					case "lock", "try":
						b.store.next(opAcquire, cut(true))
						lock := b.Lock
						if what == "try" {
							lock = b.TryLock
						}
						_, err := lock(under, "b")
						wantErr(t, err, ErrLost, "its context has ended, and matches that")
						wantErr(t, err, ErrExpired, "that is how the outer lease was lost")
					case "unlock":
						l = b.lock(t.Context(), "b")
						b.store.next(opRelease, cut(false))
						wantErr(t, l.Unlock(under), ErrUnavailable, "no answer came", ErrLost)
					case "renew":
						l = b.lock(t.Context(), "b")
						b.store.next(opRenew, cut(false))
						wantErr(t, l.Renew(under), ErrUnavailable, "no answer came", ErrLost)
						wantErr(t, l.Renew(under), context.Canceled, "the context has ended", ErrLost)
					case "reenter":
						l = b.lock(t.Context(), "b")
						b.store.next(opSetHolds, cut(false))
						_, err := b.Lock(l.Context(under), "b")
						if k == counting {
							wantErr(t, err, ErrUnavailable, "no answer came")
						}
					}
					b.until(5 * time.Second)
					kept := what == "renew" || what == "reenter"
					if held := b.store.held("b") != ""; held != kept {
						t.Errorf("b is held: %v, want %v", held, kept)
					}
					if kept && l.Err() != nil {
						t.Errorf("b: %v, want nil: the store has not denied it", l.Err())
					}
					if lost := b.events()[EventLost]; len(lost) != 1 || lost[0].Key != "a" {
						t.Errorf("lost: %v, want a only", lost)
					}
				})
			})
		}
	}
}

// A reader who re-enters under the context of another lost lease comes back.
func TestReaderUnderTheContextOfAnotherLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, counting)
		rw := newRW(t, b)
		first := must(rw.RLock(t.Context()))(t)
		under := b.lock(t.Context(), "a", WithTTL(time.Second), WithoutRenewal()).Context(t.Context())
		b.store.from(opSetHolds, cut(false))
		reader := b.begin(func() (*Lease, error) { return rw.RLock(under) })
		reader.wantEnd(t, 0, 2*time.Second, "its context has ended")
		if first.Err() != nil || reader.err == nil || errors.Is(reader.err, errGone) {
			t.Errorf("the first reader: %v, the second: %v", first.Err(), reader.err)
		}
	})
}
