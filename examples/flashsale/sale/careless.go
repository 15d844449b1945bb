package sale

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker/examples/internal/cli"
)

// unlockedShop does nothing to keep sales apart.
type unlockedShop struct{ shelf shelf }

func (s unlockedShop) sell(ctx context.Context, o *order) error {
	return s.shelf.takeOne(ctx, o)
}

// naiveExpiry is long enough for most payments, and not for all.
const naiveExpiry = 30 * time.Millisecond

// naiveShop locks as people do by hand, with two mistakes. The lock expires
// under a sale that takes long, and lets another one in. Then the first one
// deletes a lock that is not its own any more, and lets in a third.
type naiveShop struct {
	rdb   redis.UniversalClient
	key   string
	shelf shelf
}

func (s naiveShop) sell(ctx context.Context, o *order) error {
	for {
		locked, err := s.rdb.SetNX(ctx, s.key, "locked", naiveExpiry).Result()
		if err != nil {
			return err
		}
		if locked {
			break
		}
		if err := cli.Sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	defer s.rdb.Del(context.WithoutCancel(ctx), s.key)
	return s.shelf.takeOne(ctx, o)
}
