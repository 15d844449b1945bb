package locker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/strategy/memory"
)

// Run a function under a lock. The function reaches the lease, and its fencing token,
// through its context.
func ExampleDo() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()

	err := locker.Do(ctx, l, "orders/42", func(ctx context.Context) error {
		lease, _ := locker.LeaseFromContext(ctx)
		fmt.Println("inside, with a token:", lease.Token() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// inside, with a token: true
	// <nil>
}

// Tell "the function never ran" from "it ran, and the lock could not be given back".
func ExampleDoError() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42")
	defer lease.Unlock(ctx)

	ship := func(context.Context) error { return nil }
	err := locker.Do(ctx, l, "orders/42", ship, locker.WithWait(0))
	var failed *locker.DoError
	switch {
	case errors.As(err, &failed) && !failed.Ran && errors.Is(err, locker.ErrNotAcquired):
		fmt.Println("another caller ships", failed.Key)
	case errors.As(err, &failed) && failed.Ran:
		fmt.Println("shipped, but the lock stays until its TTL ends")
	}
	// Output: another caller ships orders/42
}

// A lease tells its holder when it is over, without asking the store.
func ExampleLease_Lost() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, _ := l.Lock(ctx, "orders/42", locker.WithTTL(100*time.Millisecond), locker.WithoutRenewal())

	<-lease.Lost()
	fmt.Println(errors.Is(lease.Err(), locker.ErrLost), errors.Is(lease.Unlock(ctx), locker.ErrLost))
	// Output: true true
}

// Lock under a lease's context, on the same key, re-enters; each Lock needs its Unlock.
func ExampleLease_Context() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	outer, _ := l.Lock(ctx, "orders/42")
	inner, _ := l.Lock(outer.Context(ctx), "orders/42")
	fmt.Println(inner.Holds(), inner.Token() == outer.Token())
	_ = inner.Unlock(ctx)
	_ = outer.Unlock(ctx)
	fmt.Println(outer.Holds())
	// Output:
	// 2 true
	// 0
}

// Count what happens. Events are delivered in order, beside the calls.
func ExampleObserver() {
	done := make(chan struct{})
	l, _ := memory.New(locker.WithObserver(locker.ObserverFunc(func(_ context.Context, e locker.Event) {
		fmt.Println(e.Kind, e.Key)
		if e.Kind == locker.EventReleased {
			close(done)
		}
	})))
	defer l.Close()
	lease, _ := l.Lock(context.Background(), "orders/42")
	_ = lease.Unlock(context.Background())
	<-done
	// Output:
	// acquired orders/42
	// released orders/42
}

// An operator asks who holds a lock, and takes it from a holder that is gone.
func ExampleAdmin() {
	ctx := context.Background()
	store := memory.NewStore()
	worker, _ := store.New(locker.WithMetadata("job", "nightly"))
	operator, _ := store.New()
	lease, _ := worker.Lock(ctx, "deploy")

	admin := operator.(locker.Admin)
	holder, err := admin.Inspect(ctx, "deploy")
	fmt.Println(holder.Held, holder.Strategy, holder.Metadata["job"], err)

	fmt.Println(admin.ForceUnlock(ctx, holder))
	fmt.Println(errors.Is(lease.Unlock(ctx), locker.ErrLost))
	// Output:
	// true memory nightly <nil>
	// <nil>
	// true
}

// Move something between two places. Each transfer holds both, and two of them never wait
// for each other in a circle, whichever way they go.
func ExampleLockAll() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()

	transfer := func(from, to string) error {
		accounts, err := locker.LockAll(ctx, l, []string{from, to}, locker.WithWait(time.Second))
		if err != nil {
			return err
		}
		defer accounts.Unlock(ctx)
		fmt.Println("holding", accounts.Keys(), accounts.Lease(from).Token() > 0)
		return accounts.Err() // nil: both are held still
	}
	fmt.Println(transfer("bob", "alice"))
	// Output:
	// holding [alice bob] true
	// <nil>
}

// Go on with other work while a lock is waited for.
func ExampleLockAsync() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()

	pending := locker.LockAsync(ctx, l, "report")
	defer pending.Cancel() // gives back a lease that is not taken
	select {
	case <-pending.Done():
		lease, err := pending.Lease()
		if err != nil {
			return
		}
		defer lease.Unlock(ctx)
		fmt.Println("the report is ours")
	case <-time.After(10 * time.Second):
		fmt.Println("busy with other things")
	}
	// Output: the report is ours
}

// Many readers, or one writer.
func ExampleRWLock() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	prices, _ := locker.NewRWLock(l, "prices")

	one, _ := prices.RLock(ctx)
	two, _ := prices.RLock(ctx)
	_, err := prices.Lock(ctx, locker.WithWait(0))
	fmt.Println("a writer, while there are readers:", errors.Is(err, locker.ErrNotAcquired))
	_ = one.Unlock(ctx)
	_ = two.Unlock(ctx)
	writer, err := prices.Lock(ctx)
	fmt.Println("and after them:", err)
	_ = writer.Unlock(ctx)
	// Output:
	// a writer, while there are readers: true
	// and after them: <nil>
}

// At most two exports at the same time, of all processes.
func ExampleSemaphore() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	exports, _ := locker.NewSemaphore(l, "exports", 2)

	for i := range 3 {
		permit, err := exports.Acquire(ctx, locker.WithWait(0))
		fmt.Println(i, err == nil)
		if err == nil {
			defer permit.Unlock(ctx)
		}
	}
	// Output:
	// 0 true
	// 1 true
	// 2 false
}
