//go:build unix

package report

import (
	"context"

	"github.com/distlock/locker"
)

// Ours is a Locker as a subject.
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
