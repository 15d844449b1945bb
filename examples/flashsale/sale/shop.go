package sale

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock/locker"
	"github.com/distlock/locker/examples/internal/cli"
	"github.com/distlock/locker/fence/redisfence"
)

const product = "product:42"

var errSoldOut = errors.New("sold out")

// shop sells the product. It holds a Locker and does not know of which
// strategy: that is chosen where the Locker is made.
type shop struct {
	locks locker.Locker
	shelf shelf
}

// sell serves one buyer. No other buyer, in whatever process, is between reading
// and writing the stock meanwhile. Should the lock get lost, ctx ends, and
// takeOne gives up before it writes.
func (s shop) sell(ctx context.Context, o *order) error {
	return locker.Do(ctx, s.locks, product, func(ctx context.Context) error {
		return s.shelf.takeOne(ctx, o)
	})
}

// slowPayment is how long the bank takes for every tenth unit: for the same units whichever
// buyers are served, so that a lock which is too short for it is found out.
const slowPayment = 100 * time.Millisecond

// order is one buyer's wish for one unit.
type order struct {
	payment time.Duration // how long the bank takes, mostly
	served  time.Time     // when the sale began, after the wait for the lock
	paused  bool          // see paused.go
}

// shelf is the stock as Redis keeps it.
type shelf struct {
	rdb redis.UniversalClient
	key string

	guard       *redisfence.Guard                                                      // nil: writes are not checked
	beforeWrite func(ctx context.Context, o *order, left int) (context.Context, error) // nil: nothing; see paused.go
}

// takeOne reads, works, and writes what it read less one. Two at a time sell
// the same unit twice.
func (s shelf) takeOne(ctx context.Context, o *order) error {
	o.served = time.Now()
	if err := s.admit(ctx); err != nil {
		return err
	}
	left, err := s.rdb.Get(ctx, s.key).Int()
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	payment := o.payment
	if left%10 == 0 {
		payment = slowPayment
	}
	if err := cli.Sleep(ctx, payment); err != nil {
		return err
	}
	if s.beforeWrite != nil {
		if ctx, err = s.beforeWrite(ctx, o, left); err != nil {
			return err
		}
	}
	return s.fill(ctx, left-1)
}

// admit shuts out earlier owners, before this one reads.
func (s shelf) admit(ctx context.Context) error {
	if s.guard == nil {
		return nil
	}
	lease, _ := locker.LeaseFromContext(ctx)
	return s.guard.Admit(ctx, s.key, lease.Token())
}

// fill sets the stock. It expires in case this program ends before it cleans up.
func (s shelf) fill(ctx context.Context, units int) error {
	if s.guard == nil {
		return s.rdb.Set(ctx, s.key, units, time.Hour).Err()
	}
	lease, _ := locker.LeaseFromContext(ctx)
	return s.guard.Set(ctx, s.key, lease.Token(), units, time.Hour)
}
