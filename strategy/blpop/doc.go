// Package blpop locks as hashreentrant does, with the same hash, but hands over: a
// release grants the lock to the process that has waited longest, which learns of it by
// BLPOP on a list. No polling, first come, first served.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one Redis
// deployment; and among processes that wait with this strategy, first come, first
// served: a place in the queue is kept however long the wait, as long as the process asks
// every 2 s (it asks every second) and no holder of setnx has the lock. The release itself writes the claim of the
// next process into the lock, for 2 s or the TTL if that is less, so no other gets in
// between; the process renews it to the full TTL within a second, unless the section is
// over before. Within a process goroutines queue in turn; the process has one place.
//
// It excludes and is excluded by hashreentrant, setnx and Redisson's RLock on the
// same key. So that their waiters are not starved, hand-overs are interrupted by openings,
// in which the lock is free and the queue holds back. Where others are known to wait
// (hashreentrant's and setnx's leave a mark when they are refused, and Redisson's
// subscribe) there is one every 250 ms, for 100 ms at most or until a process of ours
// took it; where none is known of, one of 20 ms every 2 s.
//
// A process that dies when it is handed the lock, or while it waits if its turn comes
// within 2 s, costs 2 s; then whoever asks gets the lock. Any number that die together
// cost little more than one of them. A wait that no push reaches (the holder's lease
// expired, a connection broke) goes on within about a second.
//
// The hold count is in Redis, as with hashreentrant.
//
// # Not guaranteed
//
// A failover of Redis that loses the key loses the lock; then the fencing
// token protects the resource. While a holder of another strategy has the
// lock, waiters poll every 10 to 100 ms.
//
// # Cost
//
// Free: one round trip to lock, one to unlock; re-entry one, and one to undo it.
// A hand-over: an attempt that queues, the release, and the element that is popped,
// however many wait. Waiting: an attempt about every second, which keeps the place. One
// connection for all keys a Locker waits for; on a cluster one for each slot, at most 16
// a node, and keys beyond them poll, with their places kept.
//
// # Keys
//
// The lock key N, a hash; locker:queue:{N}, the queue, which expires five seconds after
// the last waiter; locker:inbox:<id>, the list a process blocks on, which expires as the queue
// does;
// locker:fence:{N}, the fencing counter; and the channel hashreentrant waits on,
// redisson_lock__channel:{N} or on a cluster locker:channel:{N}; and for signals to holders
// (Lease.ReleaseRequested) the channel locker:claims:{UUID}. Redis 6.0 or newer.
// Commands: EVALSHA, EVAL, BLPOP, LPOP, RPUSH, PEXPIRE, for signals SUBSCRIBE, UNSUBSCRIBE, PING
// (on a cluster of Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS and ASKING), and inside scripts HGET,
// HMGET, HSET, HDEL, HLEN, HGETALL, RPUSH, EXISTS, DEL, PTTL, PEXPIRE, TYPE, GET,
// SET, INCRBY, TIME, PUBSUB NUMSUB, PUBLISH or SPUBLISH. Without the permission to publish
// waiters of other strategies look by themselves; without BLPOP waiters poll.
//
// It keeps no permits: locker.NewSemaphore refuses it, and locker.RWLock is made of Locks. What one
// expects of it is the order of arrival of all processes. A release of permits would have to look through the queue for as many waiters as
// fit, and to grant to each. With the bids of hashreentrant whoever asks first would
// win, as there. At a key with permits, which setnx or hashreentrant keep, its waiters poll.
package blpop
