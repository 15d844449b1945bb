package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock/locker/driver"
)

// A driver's error says whether it is worth waiting, and whether there is anything to
// clean up.
func TestDriverErrors(t *testing.T) {
	for _, c := range []struct {
		err                     error
		permanent, maybeApplied bool
	}{
		{errReset, false, true},
		{context.DeadlineExceeded, false, true},
		{errRefused, false, false},
		{errNoPerm, true, false},
		{&driver.StoreError{Err: errReset, Permanent: true}, true, true},
		{fmt.Errorf("wrapped: %w", errNoPerm), true, false},
		{&driver.StoreError{Err: errReset}, false, true},
		{ErrConflict, true, false},
		{fmt.Errorf("wrapped: %w", ErrInvalid), true, false},
		{&driver.StoreError{Err: ErrConflict, NotApplied: true}, true, false},
		{ErrLost, false, false},
	} {
		if got := driver.IsPermanent(c.err); got != c.permanent {
			t.Errorf("IsPermanent(%v) = %v, want %v", c.err, got, c.permanent)
		}
		if got := driver.MaybeApplied(c.err); got != c.maybeApplied {
			t.Errorf("MaybeApplied(%v) = %v, want %v", c.err, got, c.maybeApplied)
		}
	}
}

// An error tells the strategy, the call, the key, the kind, the cause and what to
// do, and matches kind and cause; a long key does not fill the log.
func TestErrorMessages(t *testing.T) {
	long := strings.Repeat("k", MaxKeyLen)
	for _, c := range []struct {
		err   error
		match []error
		want  string
	}{
		{&opError{strategy: "fake", op: "lock", key: "a b", kind: ErrNotAcquired}, []error{ErrNotAcquired},
			`locker: fake: lock "a b": lock not acquired`},
		{&opError{strategy: "fake", op: "unlock", key: "k", kind: ErrUnavailable, why: errReset, hint: "again"}, []error{ErrUnavailable, errReset},
			`locker: fake: unlock "k": lock store unavailable: connection reset (again)`},
		{&lossError{"fake", long, ErrDenied}, []error{ErrLost, ErrDenied},
			`locker: fake: "` + long[:80] + `"... (16384 bytes): lock lost: ` + ErrDenied.Error()},
		{invalid("no %s", "good"), []error{ErrInvalid}, "locker: invalid use: no good"},
		{errNoPerm, []error{errNoPerm.Err}, "NOPERM no permissions"},
		{lostContextError{&lossError{"fake", "k", ErrDenied}}, []error{ErrLost, context.Canceled, ErrDenied},
			`locker: fake: "k": lock lost: ` + ErrDenied.Error()},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("message %q, want %q", got, c.want)
		}
		for _, m := range c.match {
			if !errors.Is(c.err, m) {
				t.Errorf("%v does not match %v, want it to", c.err, m)
			}
		}
	}
}

// The error of a lease that was lost because renewals failed has the last failure, and the
// log has the first failure only.
func TestLossTellsTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warnings atomic.Int32
		b := newBench(t, plain, WithTTL(time.Second), WithLogger(slog.New(userLog{func(r slog.Record) {
			if r.Level == slog.LevelWarn && strings.HasPrefix(r.Message, "renewal") {
				warnings.Add(1)
			}
		}})))
		l := b.lock(t.Context(), "k")
		b.store.from(opRenew, fail(errRefused))
		<-l.Lost()
		wantErr(t, l.Err(), errRefused, "that is why")
		wantErr(t, l.Err(), ErrExpired, "and how")
		synctest.Wait()
		if n := warnings.Load(); n != 1 {
			t.Errorf("%d warnings of renewals, want 1", n)
		}
	})
}
