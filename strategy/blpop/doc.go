// Package blpop locks as hashreentrant does, with the same hash, but hands over:
// a release passes the lock to the process that has waited longest, which is
// woken by a list it blocks on. No polling, first come first served.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one Redis
// deployment; and among processes that wait with this strategy, first come, first
// served: a place in the queue is kept however long the wait, as long as the process is
// heard of every 2 s (it asks every second), and a lock that is handed over cannot be
// taken by anybody else for the second the receiver has to take it (half of one, if it
// should have been heard of again by then). One that does not, for its wake-up was lost
// or the server is that far away, queues again, at the end, unless nobody was handed the
// lock since. Within a process goroutines queue in turn; the process has one place.
//
// It excludes and is excluded by hashreentrant, setnx and Redisson's RLock on the
// same key. So that their waiters are not starved, a run of hand-overs regularly
// ends with an opening, in which the lock is free for 10 to 100 ms and the queue
// holds back.
//
// A process that dies between being handed the lock and taking it costs a second, one
// that dies while it waits half to a whole one if it is next within 2 s, else nothing. Any
// number that die together cost little more than one of them: after a hand-over that
// nobody took, who was not heard of meanwhile is passed over, and keeps its place. A wait
// that no wake-up reaches (the holder's lease expired, a connection broke) goes on within
// about a second.
//
// The hold count is in Redis, as with hashreentrant.
//
// # Not guaranteed
//
// A failover of Redis that loses the key loses the lock; the fencing token is
// what protects the resource then. While a holder of another strategy has the
// lock, waiters poll every 10 to 100 ms.
//
// # Cost
//
// Free: one round trip to lock, one to unlock; re-entry one, and one to undo it.
// A hand-over: release, wake-up and one attempt, however many wait. Waiting: an
// attempt about every second, which keeps the place. One connection for all keys a
// Locker waits for; on a cluster one for each slot, at most 16 a node, and keys
// beyond them poll.
//
// # Keys
//
// The lock key N, a hash; locker:queue:{N} and locker:seen:{N}, the queue, which
// expire five seconds after the last waiter; locker:inbox:<id>, the list a process
// blocks on, likewise; locker:fence:{N}, the fencing counter; and the channel
// hashreentrant waits on, redisson_lock__channel:{N} or on a cluster locker:channel:{N}.
// Redis 6.0 or newer. Commands: EVALSHA, EVAL, BLPOP, RPUSH, PEXPIRE (on a cluster of
// Redis 7 or newer PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS and ASKING), and
// inside scripts HGET, HSET, HDEL, HLEN, HGETALL, HEXISTS, HINCRBY, ZADD,
// ZRANGE, ZREM, RPUSH, EXISTS, DEL, PTTL, PEXPIRE, TYPE, GET, SET, INCRBY, TIME,
// PUBLISH or SPUBLISH. Without the permission to publish waiters of other strategies
// look by themselves.
package blpop
