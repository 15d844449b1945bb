package locker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock/locker"
	"github.com/distlock/locker/driver"
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

// A job that leaves checkpoints stops at one of them when another process asks for the lock.
func ExampleLease_ReleaseRequested() {
	ctx := context.Background()
	store := memory.NewStore() // stands for the store of two processes
	worker, _ := store.New()
	defer worker.Close()
	operator, _ := store.New()
	defer operator.Close()

	err := locker.Do(ctx, worker, "reindex", func(ctx context.Context) error {
		lease, _ := locker.LeaseFromContext(ctx)
		requested := lease.ReleaseRequested()
		for step := 1; ; step++ {
			fmt.Println("step", step, "has left a checkpoint")
			if step == 2 {
				_ = operator.RequestRelease(ctx, "reindex")
				<-requested // it is closed within a round trip
			}
			select {
			case <-requested:
				fmt.Println("somebody wants the lock")
				return nil
			case <-lease.AtRisk():
				fmt.Println("renewals fail")
				return nil
			default:
			}
		}
	})
	fmt.Println(err)
	// Output:
	// step 1 has left a checkpoint
	// step 2 has left a checkpoint
	// somebody wants the lock
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
func ExampleClient_ForceUnlock() {
	ctx := context.Background()
	store := memory.NewStore()
	worker, _ := store.New(locker.WithMetadata("job", "nightly"))
	operator, _ := store.New()
	lease, _ := worker.Lock(ctx, "deploy")

	holder, err := operator.Inspect(ctx, "deploy")
	fmt.Println(holder.Held, holder.Strategy, holder.Metadata["job"], err)

	fmt.Println(operator.ForceUnlock(ctx, holder))
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

// One attempt, for work that can wait.
func ExampleLocker() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()

	lease, err := l.TryLock(ctx, "nightly", locker.WithTTL(time.Minute))
	if err != nil {
		return // errors.Is(err, locker.ErrNotAcquired): another process does it
	}
	defer lease.Unlock(ctx)
	_, err = l.TryLock(ctx, "nightly")
	fmt.Println(errors.Is(err, locker.ErrNotAcquired))
	// Output: true
}

// A strategy is a driver with a Locker around it.
func ExampleNew() {
	store := memory.NewStore()
	l, err := locker.New(store.Driver(), locker.WithPrefix("app:"), locker.WithTTL(10*time.Second))
	if err != nil {
		return
	}
	defer l.Close()
	lease, _ := l.Lock(context.Background(), "k")
	fmt.Println(lease.Key(), store.Keys())
	// Output: k [app:k]
}

// A caller that has a name re-enters, whichever goroutine it is on.
func ExampleContextWithOwner() {
	l, _ := memory.New()
	defer l.Close()
	ctx := locker.ContextWithOwner(context.Background(), "job-7")

	first, _ := l.Lock(ctx, "k")
	second, _ := l.Lock(ctx, "k")
	fmt.Println(second.Owner(), second.Holds())
	_ = second.Unlock(ctx)
	_ = first.Unlock(ctx)
	// Output: job-7 2
}

// Code below Do finds the lease, and its token, in its context.
func ExampleLeaseFromContext() {
	l, _ := memory.New()
	defer l.Close()
	save := func(ctx context.Context) error {
		lease, ok := locker.LeaseFromContext(ctx)
		fmt.Println(ok, lease.Key(), lease.Token() > 0)
		return nil
	}
	_ = locker.Do(context.Background(), l, "orders/42", save)
	// Output: true orders/42 true
}

// A lease that nothing renews but the caller, while there is progress.
func ExampleLease_Renew() {
	ctx := context.Background()
	l, _ := memory.New()
	defer l.Close()
	lease, err := l.Lock(ctx, "import", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	if err != nil {
		return
	}
	defer lease.Unlock(ctx)
	for batch := range 3 {
		fmt.Println("batch", batch)
		if err := lease.Renew(ctx); err != nil {
			return // errors.Is(err, locker.ErrLost)
		}
	}
	// Output:
	// batch 0
	// batch 1
	// batch 2
}

// The store says who holds a lock, with what its Locker was told to add.
func ExampleWithMetadata() {
	ctx := context.Background()
	l, _ := memory.New(locker.WithMetadata("release", "v1.2.3"))
	defer l.Close()
	lease, _ := l.Lock(ctx, "deploy")
	defer lease.Unlock(ctx)

	holder, _ := l.Inspect(ctx, "deploy")
	fmt.Println(holder.Metadata["release"], driver.MetadataOf(holder.ID)["pid"] != "")
	// Output: v1.2.3 true
}
