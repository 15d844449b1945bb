// Package locker is distributed locking with one interface and interchangeable
// strategies behind it.
//
//	l, err := hashreentrant.New(rdb) // or setnx.New, memory.New, ...
//	...
//	err = locker.Do(ctx, l, "orders/42", func(ctx context.Context) error {
//		// No other process is in here. ctx ends if the lock is lost.
//		return ship(ctx)
//	})
//
// [Locker], [Lease], [Do] and the errors are all a user needs to know: [ErrNotAcquired]
// for contention, [ErrUnavailable] for trouble with the store, [ErrLost], [ErrNotHeld],
// [ErrConflict], [ErrInvalid] and [ErrClosed]. Without options a lease has a TTL of 30 s,
// is renewed while it is held, and Lock waits until its context ends. Options set other
// times and limits. An [Observer] receives an [Event] for each grant, release, renewal and
// loss. Strategies are in the packages under strategy; package driver is the contract for
// writing one, and package conformance tests it.
//
// # Words
//
//   - owner: who holds a lock: the name given by [ContextWithOwner], else a name that is
//     made up for the grant.
//   - claim: one grant of a key to a process, as it stands in the store. Its id is
//     never used again.
//   - lease: one caller's view of a claim. Re-entry adds a lease to a claim.
//   - hold: a lease that is not unlocked; a claim is released with its last hold.
//   - TTL: how long the store keeps a claim that is not renewed.
//   - deadline: the time until which the holder may rely on the claim.
//   - token: the fencing token, greater for every later grant of a key.
//   - watchdog: the scheduler that extends held claims. One extension is a renewal.
//   - watch: a subscription to the releases of a key, for waiters.
//   - hand-over: the passing of a lock from one owner to the next: inside the process
//     ([WithHandOver]) or, with blpop, by the release.
//   - queue: the waiters for a key in one process. blpop also has a queue of processes.
//   - loss: the end of a lease by anything but its Unlock.
//   - risk: renewals have failed for so long that a loss is near ([Lease.AtRisk]).
//   - signal: a message to the Locker that holds a claim ([Lease.ReleaseRequested]).
//
// # Guarantees
//
// At any time at most one owner holds a key, as long as the store keeps it and
// neither clock runs more than 1 % off during a lease.
//
// The end of a lease is known by its Deadline, without asking the store: its Lost channel
// closes and its contexts end. Its methods, and Err of its contexts, look at the clock when
// they are called, so that a process that was stopped learns of the end by its first call.
// Held leases are renewed every third of their
// TTL, by one scheduler without a goroutine or timer for each, and a renewal
// that fails is tried again until the Deadline. A holder may know early that its renewals
// fail ([Lease.AtRisk]), and that somebody wants the lock ([Lease.ReleaseRequested]); with
// [WithMargin] nobody else is let in for a while after its end.
//
// Every grant has a fencing token greater than all before it on that key.
//
// Commands may be lost, answered late or arrive twice: hold counts stay right,
// no process frees another's lock, and a key whose holder vanished is free after
// its TTL at the latest.
//
// Within a Locker waiters are served first come, first served, and only the first sends
// commands. A free lock is taken at once, and within about a second if a notification was
// lost.
//
// The rules in full are in docs/rules.md.
//
// # Re-entry
//
// Lock under a lease's context, on the same key, re-enters. On another key it is
// an ordinary Lock: two goroutines under one outer lease exclude each other
// there. [ContextWithOwner] names a caller explicitly, for all keys; all callers
// that share the name share its locks.
//
// # Not guaranteed
//
// No lock with a TTL stops a process that is paused between its last look at
// the clock and its write: it may write after its lease has ended. Its token is
// too small by then; let the resource refuse it. The clock meant is Go's
// monotonic one, which stands still while a whole machine is suspended.
//
// A store that loses data (a restart without persistence, a failover to a replica that
// lagged) loses locks. The old holder learns of the loss at its next renewal. Tokens go on
// growing.
package locker
