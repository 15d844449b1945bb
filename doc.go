// Package locker provides distributed locks: one interface, and interchangeable strategies behind it.
//
//	l, err := blpop.New(rdb) // or hashreentrant.New, setnx.New, memory.New, ...
//	...
//	err = locker.Do(ctx, l, "orders/42", func(ctx context.Context) error {
//		// While the lock is held, nobody else is in here. ctx ends when the lock is lost.
//		return ship(ctx)
//	})
//
// Without a function:
//
//	lease, err := l.Lock(ctx, "orders/42", locker.WithWait(5*time.Second))
//	if err != nil {
//		return err // ErrNotAcquired: taken for 5 s; ErrUnavailable: the store could not be used
//	}
//	defer lease.Unlock(ctx)
//
// [Locker], [Lease], [Do] and the errors are all a user needs to know: [ErrNotAcquired]
// for contention, [ErrUnavailable] for trouble with the store, [ErrLost], [ErrNotHeld],
// [ErrConflict], [ErrInvalid] and [ErrClosed]. Without options a lease has a TTL of 30 s,
// is renewed while it is held, and Lock waits until its context ends, or an outage of the store
// has lasted for 30 s. Options set other times and limits. An [Observer] receives an [Event] for
// each grant, release, renewal and loss.
//
// # Where the rest is
//
//   - On one Redis, with Sentinel or on a cluster: strategy/setnx (waiters poll), strategy/hashreentrant (waiters are
//     woken by pub/sub; it shares locks with Redisson), strategy/blpop (processes are served first come, first served).
//   - strategy/redlock: a majority of Redis servers. strategy/memory: this process.
//   - Modules of their own: strategy/postgres, strategy/mysql (waiters poll), strategy/etcd (first come, first served).
//   - Package strategy opens each of these by a URL, a file or a Config.
//   - fence: how a resource checks fencing tokens. sqlfence, redisfence and httpfence below it do so in a SQL
//     transaction, in Redis and in an HTTP server.
//   - adapters/leader elects a leader, adapters/once runs a request once; other adapters are beside them.
//   - driver: the contract for a strategy of your own. Package conformance tests it.
//   - cmd/locker shows and breaks locks on the command line.
//
// A free lock costs one round trip, and so does its Unlock; redlock, mysql and etcd may need more.
//
// # Words
//
//   - owner: who holds a lock: the name given by [ContextWithOwner], else a name that is
//     generated for the grant.
//   - claim: one grant of a key to a process, as it stands in the store. Its id is
//     never used again.
//   - lease: one caller's view of a claim. Re-entry adds a lease to a claim.
//   - hold: a lease that is not unlocked; a claim is released with its last hold.
//   - TTL: how long the store keeps a claim that is not renewed.
//   - deadline: the time until which the holder may rely on the claim.
//   - margin: how much earlier a lease ends for its holder than for the store ([WithMargin]).
//   - token: the fencing token, greater for every later grant of a key.
//   - watchdog: the scheduler that extends held claims. One extension is a renewal.
//   - watch: a subscription to the releases of a key, for waiters.
//   - hand-over: the passing of a lock from one owner to the next: inside the process
//     ([WithHandOver]) or, with blpop, by the release.
//   - queue: the waiters for a key in one process. blpop also has a queue of processes.
//   - loss: the end of a lease by anything but its Unlock or LetExpire.
//   - risk: renewals have failed for so long that a loss is near ([Lease.AtRisk]).
//   - signal: a message to the Locker that holds a claim ([Lease.ReleaseRequested]).
//
// # Guarantees
//
// At any time at most one owner holds a key. This is true as long as the store keeps the key, the
// server's clock does not jump ahead (etcd does not need this), and the clocks of the store and of
// the holder run at rates that differ by at most 1 % during a lease.
//
// A holder learns of the end of its lease by the Deadline, without asking the store: Err of its contexts, and the
// methods of a Lease except Key, Owner, Token and Deadline, look at the clock. So a process that was stopped learns of the end
// by its first call. The Lost channel closes and the lease's contexts end at the Deadline, once the process gets CPU.
//
// A held lease is renewed every third of its TTL. A renewal that fails is tried again until the Deadline. One
// scheduler renews all leases, without a goroutine or timer for each. [Lease.AtRisk] closes when renewals have
// failed for some time, [Lease.ReleaseRequested] when somebody asks for the lock. With [WithMargin] a lease ends
// for its holder some time before another owner can be granted the key.
//
// Every grant has a fencing token greater than all before it on that key; for the exceptions see [Lease.Token].
//
// Commands may be lost, answered late or arrive twice. Hold counts stay right, and no process
// frees another's lock. The key of a holder that vanished is free after its TTL; with etcd up to
// 3 s after its Deadline.
//
// Within a Locker waiters are served first come, first served. As a rule only the first waiter sends commands; waiters
// for permits send several at once. A waiter takes a freed lock when it is woken, within 10 to 100 ms where waiters
// poll, and within about a second if a notification was lost.
//
// The rules in full are in docs/rules.md.
//
// # Re-entry
//
// Lock under a lease's context, on the same key, re-enters. On another key it is an ordinary
// Lock: two goroutines under one outer lease exclude each other there. If the function calls Lock
// on the same key with the context that the caller passed to Do, and not with its own, it waits
// for its own lock. [ContextWithOwner] names a caller explicitly, for all keys; all callers that
// share the name share its locks.
//
// # Not guaranteed
//
// No lock with a TTL stops a process that is paused between its last look at
// the clock and its write: it may write after its lease has ended. By then another
// owner may have a greater token: let the resource refuse the smaller one. The Locker uses Go's
// monotonic clock, which stands still while a whole machine is suspended.
//
// A store that loses data (a restart without persistence, a failover to a replica that
// lagged) loses locks. The old holder learns of the loss at its next renewal. Tokens keep
// growing; [Lease.Token] lists the exceptions.
package locker
