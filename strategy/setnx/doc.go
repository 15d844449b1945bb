// Package setnx locks with SET NX PX: the key is a string whose value names the grant. Only the holder of
// this grant deletes the key.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one Redis
// deployment. Plain clients that use the same key by SET key value NX PX ttl and
// compare-and-delete (redsync, redis-py's Lock, node-redlock, a line of shell)
// exclude it and are excluded by it.
//
// # Not guaranteed
//
// The goroutines of one Locker are served first come, first served. Among
// processes, the first to poll a free key gets the lock. Hold counts stay in the process: another
// process with the same owner is excluded. A failover of Redis that loses the key
// loses the lock; then the fencing token protects the resource.
//
// # Cost
//
// A free lock takes one round trip, and its Unlock one. So does a permit of a semaphore, a reader and a writer.
// While the key is taken, each waiting process makes an attempt every 10 to 100 ms, and when the holder's lease ends.
//
// # Keys
//
// The lock key, a string; locker:fence:{key}, the fencing counter; and for signals to holders
// (Lease.ReleaseRequested) the channel locker:claims:{UUID}. Redis 6.0 or newer. Commands: EVALSHA, EVAL, for signals
// SUBSCRIBE, UNSUBSCRIBE, PING (on a cluster of Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and PUBSUB SHARDNUMSUB; for
// go-redis CLUSTER SLOTS and ASKING), and inside scripts GET, SET, DEL, PTTL, PEXPIRE, TYPE, INCRBY, TIME, HGETALL,
// PUBLISH, and for permits HGET, HMGET, HSET, HDEL, HLEN, HKEYS, HSCAN, EXISTS, PEXPIREAT, ZADD, ZREM, ZSCORE, ZCARD,
// ZRANGE, ZRANGEBYSCORE. Without the permission to subscribe, holders get no signals.
//
// A key with permits (locker.Semaphore, locker.RWLock) is a hash, which SET NX of a plain client does not
// replace, and beside it is locker:permits:{key}, a sorted set of the permits' ends; both go with the last
// permit. hashreentrant keeps permits in the same way, so that both share them; its waiters are woken by the channel
// redisson_lock__channel:{key}.
package setnx
