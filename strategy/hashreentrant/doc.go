// Package hashreentrant locks as Redisson's RLock does, with the same key,
// fields, channel and messages: a hash that counts its owner's holds, waiters
// woken by pub/sub, and a watchdog that renews.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one Redis
// deployment; and with Redisson 3.15 to 4.x on the same name, either way: a Java RLock excludes
// it and is excluded by it, and each wakes the other's waiters. (Redisson's fair, spin and
// read-write locks exclude it as well; waiters of this strategy may notice a release of these
// locks about a second late, and their waiters in Java may notice a release of this strategy a
// TTL late. But Redisson grants a read-write lock on a key that this strategy holds, since it
// looks only for its own field: give the read-write lock another name.) On a cluster see
// [WithShardedPubSub].
//
// The hold count is in Redis. A caller named by locker.ContextWithOwner re-enters
// from another process, too, with the token of the hold that it joins. The holds of each process
// have a TTL of their own. The key is free when the last hold of this owner was given back or has
// ended. Counts are set absolutely, so a command whose reply was lost or that
// was sent twice leaves no second hold behind (redisson#7367).
//
// # Not guaranteed
//
// The goroutines of one Locker are served first come, first served. No order among processes is promised, but their
// shares are nearly even: a release wakes one waiter of each process, and the process that has waited through the
// largest number of releases asks first. The others follow at intervals of 2 ms, and the last asks within 20 ms.
// Processes of Redisson and processes with a named owner ask at once; while one of them holds the key, all processes
// ask at once. A failover of Redis that loses the key loses the lock; then the fencing token protects the resource.
// Java's RFencedLock counts its tokens in a key of its own.
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
// redisson_lock__channel:{N}, or on a cluster, where that would lie in another slot than N,
// locker:channel:{N}; and for signals to holders (Lease.ReleaseRequested) the channel
// locker:claims:{UUID}. Redis 6.0 or newer. Commands: EVALSHA, EVAL, SUBSCRIBE, UNSUBSCRIBE, PING (on a
// cluster of Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS
// and ASKING), and inside scripts HGET, HSET, HDEL, HLEN, HGETALL, EXISTS, DEL, PTTL, PEXPIRE, TYPE, GET,
// SET, INCRBY, TIME, PUBLISH or SPUBLISH, and for permits HMGET, HKEYS, HSCAN, PEXPIREAT, ZADD, ZREM,
// ZSCORE, ZCARD, ZRANGE, ZRANGEBYSCORE. Without the permission to subscribe or publish, waiters poll, and
// holders get no signals.
//
// A key with permits (locker.Semaphore, locker.RWLock) is a hash, too, and beside it is
// locker:permits:{N}, a sorted set of the permits' ends; both go with the last permit. It is neither
// Redisson's RSemaphore nor its RReadWriteLock.
package hashreentrant
