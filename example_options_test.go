package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

// A bounded wait; with 0 it is one attempt, as TryLock is.
func ExampleWithWait() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42")
	defer lease.Unlock(ctx)

	_, err := l.Lock(ctx, "orders/42", locker.WithWait(20*time.Millisecond))
	fmt.Println(errors.Is(err, locker.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output: true false
}

// Defaults of a Locker hold for its calls, which may differ: here one waits after all.
func ExampleWithUnboundedWait() {
	ctx := context.Background()
	l, _ := memory.New(locker.WithWait(0), locker.WithTTL(10*time.Second))
	defer l.Close()
	first, _ := l.Lock(ctx, "orders/42")
	time.AfterFunc(10*time.Millisecond, func() { _ = first.Unlock(ctx) })

	second, err := l.Lock(ctx, "orders/42", locker.WithUnboundedWait())
	fmt.Println(err)
	_ = second.Unlock(ctx)
	// Output: <nil>
}

// A lease that ends by itself: when its holder crashes, and when it does not unlock in time.
func ExampleWithTTL() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
	fmt.Println(time.Until(lease.Deadline()) < 5*time.Second)
	_ = lease.Unlock(ctx)
	// Output: true
}

// A section may not take for ever, though its lease is renewed. What is left of the TTL
// after the loss is for rolling back: the key is still taken until Unlock.
func ExampleWithMaxHold() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42", locker.WithMaxHold(30*time.Millisecond))

	section := lease.Context(ctx)
	<-section.Done()
	fmt.Println(errors.Is(context.Cause(section), locker.ErrMaxHold))
	_, err := l.TryLock(ctx, "orders/42")
	fmt.Println(errors.Is(err, locker.ErrNotAcquired))
	_ = lease.Unlock(ctx)
	// Output:
	// true
	// true
}

// Two environments on one Redis: the same key, and two locks.
func ExampleWithPrefix() {
	ctx := context.Background()
	store := memory.NewStore()
	staging, _ := store.New(locker.WithPrefix("staging:"))
	defer staging.Close()
	production, _ := store.New(locker.WithPrefix("production:"))
	defer production.Close()

	one, _ := staging.Lock(ctx, "orders/42")
	two, err := production.TryLock(ctx, "orders/42")
	fmt.Println(err, store.Keys())
	_ = one.Unlock(ctx)
	_ = two.Unlock(ctx)
	// Output: <nil> [production:orders/42 staging:orders/42]
}

// Losses, nodes in trouble and releases that fail are logged; without the option nothing is.
func ExampleWithLogger() {
	l, err := memory.New(locker.WithLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil))))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	// Output:
}

// Every grant is asked of the store, so that other processes get their turns sooner. By
// default a Locker passes a key on to its own waiters, 16 times and for 20 ms at most.
func ExampleWithoutHandOver() {
	l, err := memory.New(locker.WithoutHandOver())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	// Output:
}

// No tokens, where the lock protects nothing that could refuse an old one.
func ExampleWithoutFencing() {
	ctx := context.Background()
	l, _ := memory.New(locker.WithoutFencing())
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42")
	fmt.Println(lease.Token())
	_ = lease.Unlock(ctx)
	// Output: 0
}

// Attempts that came to nothing, counted beside the calls.
func ExampleWithObserver() {
	done := make(chan struct{})
	ctx := context.Background()
	l, _ := memory.New(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventNotAcquired {
			fmt.Println(e.Key, errors.Is(e.Err, locker.ErrNotAcquired))
			close(done)
		}
	})))
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42")
	_, _ = l.TryLock(ctx, "orders/42")
	<-done
	_ = lease.Unlock(ctx)
	// Output: orders/42 true
}

// A process that locks the same keys again and again keeps them: its next Lock needs no command. Another process
// that wants one asks for it, and gets it at once.
func ExampleWithSticky() {
	store := memory.NewStore() // what the Redis server is to other strategies
	l, err := store.New(locker.WithSticky(500 * time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	other, err := store.New()
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()

	var last int64
	for range 1000 {
		err := locker.Do(context.Background(), l, "account/42", func(ctx context.Context) error {
			lease, _ := locker.LeaseFromContext(ctx)
			if lease.Token() <= last {
				log.Fatal("tokens grow from lease to lease")
			}
			last = lease.Token()
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	lease, err := other.Lock(context.Background(), "account/42")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())
	fmt.Println("the other process has a greater token:", lease.Token() > last)
	// Output: the other process has a greater token: true
}
