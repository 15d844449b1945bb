// Package hashreentrant locks as Redisson's RLock does, with the same key,
// fields, channel and messages: a hash that counts its owner's holds, waiters
// woken by pub/sub, and a watchdog that renews.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one
// Redis deployment; and with Redisson 3.15 to 4.x on the same name, either way: a Java
// RLock excludes it and is excluded by it, and each wakes the other's waiters.
// (Redisson's fair, spin and read-write locks exclude it as well; their waiters
// may notice a release about a second or, in Java, a TTL late. But a read-write lock
// looks for nothing but its own field, so it is granted on a key that is held here: it
// must have another name.) On a cluster see [WithShardedPubSub].
//
// The hold count is in Redis. A caller named by locker.ContextWithOwner re-enters
// from another process too, with the token of the hold it joins; the key is
// free when the last hold of that owner was given back or has ended, each process's
// by its own TTL. Counts are set absolutely, so a command whose reply was lost or that
// was sent twice leaves no second hold behind (redisson#7367).
//
// # Not guaranteed
//
// First come, first served holds among the goroutines of one Locker. A release
// wakes one waiter of each process. The process that has waited for most releases asks first, and each of the
// others 2 ms later than the one before it, 20 ms later at most: shares are nearly even, but no order
// is promised. While processes that ask at once hold the key (Redisson's, or with a named owner), all ask at
// once. A failover of
// Redis that loses the key loses the lock; the fencing token protects
// the resource then. Java's RFencedLock counts its tokens in a key of its own.
//
// # Cost
//
// Free: one round trip to lock, one to unlock; re-entry one, and one to undo it.
// Contended: two attempts and a subscription for the first waiter of a process,
// then one attempt for each release, and one about every second in case a
// message was missed. A permit of a semaphore, a reader and a writer cost as much as a lock,
// whatever number is out. One connection for all subscriptions of a Locker (on a
// cluster one a node), closed when no caller waits.
//
// # Keys
//
// The lock key N, a hash; locker:fence:{N}, the fencing counter; and the channel
// redisson_lock__channel:{N}, or on a cluster, where that would lie in another slot
// than N, locker:channel:{N}; and for signals to holders (Lease.ReleaseRequested) the channel
// locker:claims:{UUID}. Redis 6.0 or newer. Commands: EVALSHA, EVAL, SUBSCRIBE,
// UNSUBSCRIBE, PING (on a cluster of Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and
// PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS and ASKING), and inside scripts HGET,
// HSET, HDEL, HLEN, HGETALL, EXISTS, DEL, PTTL, PEXPIRE, TYPE, GET, SET, INCRBY, TIME,
// PUBLISH or SPUBLISH, and for permits HMGET, HKEYS, HSCAN, PEXPIREAT, ZADD, ZREM, ZSCORE, ZCARD, ZRANGE,
// ZRANGEBYSCORE. Without the permission to subscribe or publish waiters poll, and
// holders get no signals.
//
// A key with permits (locker.Semaphore, locker.RWLock) is a hash, too, and beside it is
// locker:permits:{N}, a sorted set of the permits' ends; both go with the last permit. It is neither
// Redisson's RSemaphore nor its RReadWriteLock.
package hashreentrant
