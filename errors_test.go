package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a driver's error means: is it worth waiting, and is there anything to
// clean up?
func TestDriverErrors(t *testing.T) {
	for _, c := range []struct {
		err                     error
		permanent, maybeApplied bool
	}{
		{errReset, false, true},
		{context.DeadlineExceeded, false, true},
		{errRefused, false, false},
		{errNoPerm, true, false},
		{&StoreError{Err: errReset, Permanent: true}, true, true},
		{fmt.Errorf("wrapped: %w", errNoPerm), true, false},
		{&StoreError{Err: errReset}, false, true},
		{ErrConflict, true, false},
		{fmt.Errorf("wrapped: %w", ErrInvalid), true, false},
		{&StoreError{Err: ErrConflict, NotApplied: true}, true, false},
		{ErrLost, false, true},
	} {
		if got := isPermanent(c.err); got != c.permanent {
			t.Errorf("isPermanent(%v) = %v, want %v", c.err, got, c.permanent)
		}
		if got := maybeApplied(c.err); got != c.maybeApplied {
			t.Errorf("maybeApplied(%v) = %v, want %v", c.err, got, c.maybeApplied)
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
		{&lossError{"fake", long, errDenied}, []error{ErrLost, errDenied},
			`locker: fake: "` + long[:80] + `"... (16384 bytes): lock lost: ` + errDenied.Error()},
		{invalid("no %s", "good"), []error{ErrInvalid}, "locker: invalid use: no good"},
		{errNoPerm, []error{errNoPerm.Err}, "NOPERM no permissions"},
		{lostContextError{&lossError{"fake", "k", errDenied}}, []error{ErrLost, context.Canceled, errDenied},
			`locker: fake: "k": lock lost: ` + errDenied.Error()},
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

// Ids are UUIDs of the version asked for, and differ.
func TestNewUUID(t *testing.T) {
	seen := make(map[string]bool)
	for _, version := range []int{4, 8} {
		for range 1000 {
			id := newUUID(version)
			if len(id) != 36 || int(id[14]-'0') != version || !strings.ContainsRune("89ab", rune(id[19])) || seen[id] {
				t.Fatalf("id %q, want a fresh UUID of version %d", id, version)
			}
			for _, i := range []int{8, 13, 18, 23} {
				if id[i] != '-' {
					t.Fatalf("id %q, want a dash at %d", id, i)
				}
			}
			seen[id] = true
		}
	}
}

// Pauses double from the least to the most, with jitter, and never leave those
// bounds.
func TestBackoff(t *testing.T) {
	var b backoff
	most := 2 * pollMin
	for i := range 1000 {
		wantBetween(t, fmt.Sprintf("pause %d is", i), b.next(pollMin, pollMax), pollMin, most, "it grows up to the most")
		most = min(2*most, pollMax)
	}
	if p := (&backoff{}).next(time.Second, time.Second); p != time.Second {
		t.Errorf("a pause of %v, want 1s: least and most are the same", p)
	}
}
