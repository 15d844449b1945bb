package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

// Report is code to be tested: it makes the daily report unless another
// instance is at it. In production it is given a Locker of another strategy.
func Report(ctx context.Context, l locker.Locker) (string, error) {
	lease, err := l.TryLock(ctx, "report:daily")
	if errors.Is(err, locker.ErrNotAcquired) {
		return "skipped: another instance makes it", nil
	}
	if err != nil {
		return "", err
	}
	defer lease.Unlock(ctx)
	return "made", nil
}

// Unit-testing code that takes a [locker.Locker]: a second Locker on the same
// Store plays the other instance.
func Example() {
	ctx := context.Background()
	store := memory.NewStore()
	ours, _ := store.New()
	defer ours.Close()
	theirs, _ := store.New()
	defer theirs.Close()

	lease, _ := theirs.Lock(ctx, "report:daily")
	fmt.Println(Report(ctx, ours))

	_ = lease.Unlock(ctx)
	fmt.Println(Report(ctx, ours))
	fmt.Println("still held:", store.Keys())

	// Output:
	// skipped: another instance makes it <nil>
	// made <nil>
	// still held: []
}
