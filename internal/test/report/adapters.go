//go:build unix

package report

import (
	"context"
	"time"

	"github.com/distlock/locker"
)

// Ours makes a Locker a subject.
func Ours(l locker.Locker) Client {
	return func(ctx context.Context, key string) (Held, error) {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			return Held{}, err
		}
		return Held{
			Token:  lease.Token(),
			Holds:  func(context.Context) (bool, error) { return lease.Err() == nil, nil },
			Unlock: lease.Unlock,
		}, nil
	}
}

// TryAgain is the pause between calls of Again.
const TryAgain = 10 * time.Millisecond

// Again repeats a call until it succeeds or ctx ends, for libraries whose calls fail before.
func Again(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(TryAgain):
		}
	}
}
