// Package setnx locks with SET NX PX: a string key whose value names the grant,
// deleted by whoever it names.
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
// First come, first served holds among the goroutines of one Locker; between
// processes whoever polls first wins. Hold counts stay in the process: another
// process with the same owner is excluded. A failover of Redis that loses the key
// loses the lock; then the fencing token protects the resource.
//
// # Cost
//
// Free: one round trip to lock, one to unlock. Contended: an attempt every 10 to
// 100 ms from each process, or when the holder's lease ends.
//
// # Keys
//
// The lock key, a string; locker:fence:{key}, the fencing counter; and for signals to
// holders (Lease.ReleaseRequested) the channel locker:claims:{UUID}. Redis 6.0 or
// newer. Commands: EVALSHA, EVAL, for signals SUBSCRIBE, UNSUBSCRIBE, PING (on a cluster of
// Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS
// and ASKING), and inside scripts GET, SET, DEL, PTTL, PEXPIRE, TYPE, INCRBY, TIME. Without the
// permission to subscribe holders get no signals.
package setnx
