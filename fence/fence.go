// Package fence checks fencing tokens for the resource that a lock protects.
//
// A lock with a TTL cannot stop a write of an owner that was paused past its lease. The
// resource can: each grant of a key has a token greater than every earlier one
// (locker.Lease.Token), the write carries it, and a [Guard] refuses a token smaller than the
// greatest that it has admitted. The comparison belongs in the step that writes:
//
//   - package sqlfence admits a token in the SQL transaction of the write,
//   - package redisfence in the script that writes the value,
//   - package httpfence answers 412 to a request with a stale token, and sends the token of a lease.
//
// A Guard that is asked before the write, in a step of its own, leaves room for a pause between
// the two. It makes a late write rare, and not impossible: use it only for a resource that has
// neither transactions nor scripts.
//
// # What a Guard keeps
//
//   - It admits a token equal to or greater than every one that it has admitted for the key. So a
//     critical section may write many times, and an Admit whose answer was lost may be sent again.
//   - It refuses a smaller one with [ErrStale], also when several are asked for at the same time.
//   - It refuses a token below 1 with [ErrInvalid]: no lease has such a token, except the 0 of a
//     lease from a Locker
//     with locker.WithoutFencing.
//   - Keys are bytes, 1 to 16384 of them. Different keys have nothing in common.
//   - It forgets nothing by itself. A guard that has lost what it knew admits a late writer.
//
// Package fencetest checks it. Tokens of one key come from one lock: two locks, or two stores,
// know nothing of one another's tokens.
//
// This package imports the standard library only: a service that checks tokens needs no lock.
package fence

import (
	"context"
	"errors"
	"fmt"
)

// Errors, to be matched with [errors.Is].
var (
	// ErrStale: a greater token was admitted for the key. A later owner was here: write nothing,
	// and take the lock anew to begin again.
	ErrStale = errors.New("stale fencing token")
	// ErrInvalid: a bad key, token or option.
	ErrInvalid = errors.New("invalid use")
)

// Guard admits tokens. [What a Guard keeps] lists its promises.
//
// [What a Guard keeps]: https://pkg.go.dev/github.com/distlock/locker/fence#hdr-What_a_Guard_keeps
type Guard interface {
	// Admit returns nil if no greater token was admitted for key, and remembers token. After an
	// error that matches neither ErrStale nor ErrInvalid the token may or may not have been
	// admitted: either give the write up, or send the token again first.
	Admit(ctx context.Context, key string, token int64) error
}

// MaxKey is the greatest length of a key, in bytes. It is that of a lock's key.
const MaxKey = 16 << 10

// Validate returns an error that matches [ErrInvalid] unless key and token are ones that a Guard
// may admit. It is for authors of Guards.
func Validate(key string, token int64) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("fence: %w: want a key of 1 to %d bytes, got %d", ErrInvalid, MaxKey, len(key))
	case token < 1:
		return fmt.Errorf("fence: key %s: %w: want a fencing token of 1 or more, got %d; take it from Lease.Token, of a Locker without WithoutFencing",
			Quote(key), ErrInvalid, token)
	}
	return nil
}

// StaleError is how the Guards of this module refuse a token. It matches [ErrStale].
type StaleError struct {
	Key   string
	Token int64 // refused
	Seen  int64 // the greater one that was admitted; 0 where the Guard does not know it
}

func (e *StaleError) Error() string {
	seen := "a greater one"
	if e.Seen != 0 {
		seen = fmt.Sprint(e.Seen)
	}
	return fmt.Sprintf("fence: key %s: %v: got %d, and %s was admitted before: a later owner was here", Quote(e.Key), ErrStale, e.Token, seen)
}

func (e *StaleError) Unwrap() error { return ErrStale }

// Quote returns key for an error's text: quoted, and cut off where it is long.
func Quote(key string) string {
	const most = 80
	if len(key) <= most {
		return fmt.Sprintf("%q", key)
	}
	return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
}
