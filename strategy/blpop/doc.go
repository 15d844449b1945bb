// Package blpop locks as hashreentrant does, with the same hash, but hands over: a
// release grants the lock to the process that has waited longest. This process learns of its grant by
// BLPOP on a list. Processes are served first come, first served, and do not poll.
//
// # Guarantees
//
// It keeps the promise of every strategy of this module (see package locker) on one Redis
// deployment. Processes that wait with this strategy are served first come, first
// served. A process keeps its place in the queue as long as it asks every 2 s (it asks every second)
// and no holder of setnx has the lock. The release itself writes the claim of the next process into
// the lock, so no other process gets in between. This claim lasts for 2 s, or for the TTL if that is
// less. Within a second the process renews it to the full TTL, unless it has released the lock
// before. A process has one place in the queue; its goroutines queue for this place.
//
// It excludes and is excluded by hashreentrant, setnx and Redisson's RLock on the same key. Their
// waiters must not starve. So at times the lock stays free and the queue holds back: an opening.
// While waiters of other strategies are known, there is an opening every 250 ms, for 100 ms at
// most, or until a waiter of another strategy has taken the lock. (Waiters of hashreentrant and
// setnx leave a mark when they are refused, and Redisson's waiters subscribe.) While none is known,
// there is an opening of 20 ms every 2 s.
//
// A process that dies when it gets the lock, or less than 2 s before its turn, holds the queue up for
// 2 s. Then the first process that asks gets the lock. Many processes that die together hold
// the queue up little longer than one. A wait that no push reaches (the holder's lease
// expired, a connection broke) goes on within about a second.
//
// The hold count is in Redis, as with hashreentrant.
//
// Permits (locker.Semaphore, and readers and writers of locker.RWLock) are granted first come, first served, too,
// whatever number a caller asks for. A waiter gets its permits when the free permits suffice for it and for every
// waiter before it. So permits may be free while the first in line waits for more than there are. The line has the
// first waiter of each process. Its order is that in which these callers came, not that in which their processes
// joined. A release wakes those that fit now, and each of them asks. A process that is silent for 2 s leaves the
// line, and has its turn as before when it comes again. hashreentrant and setnx keep permits in the same hash. The
// first waiter in line goes before waiters of hashreentrant and setnx, unless one of those bids (see
// driver.PermitKeeper) and has waited longer. After a release by a holder of hashreentrant or setnx, the waiters in
// line ask within a second.
//
// # Not guaranteed
//
// A failover of Redis that loses the key loses the lock; then the fencing
// token protects the resource. While a holder of another strategy has the
// lock, waiters poll every 10 to 100 ms; so they do for permits of a key that is locked. A release of permits
// wakes at most 64 processes.
//
// # Cost
//
// Free: one round trip to lock, one to unlock; re-entry one, and one to undo it. A permit of a semaphore, a reader and
// a writer cost as much as a lock, whatever number is out. A hand-over: an attempt that queues, the release, and the
// element that is popped. On average it takes 2.5 commands between 2 processes, and 4.5 between 100. Waiting: an
// attempt about every second, which keeps the place. One connection for all keys a Locker waits for; on a cluster one
// for each slot, at most 16 a node, and keys beyond them poll, with their places kept.
//
// # Keys
//
// The lock key N, a hash; locker:queue:{N}, the queue, which expires five seconds after the last waiter;
// locker:inbox:<id>, the list a process blocks on, which expires as the queue does; locker:fence:{N}, the fencing
// counter; and the channel hashreentrant waits on, redisson_lock__channel:{N} or on a cluster locker:channel:{N}; and
// for signals to holders (Lease.ReleaseRequested) the channel locker:claims:{UUID}. Redis 6.0 or newer.
//
// Commands: EVALSHA, EVAL, BLPOP, LPOP, RPUSH, PEXPIRE, for signals SUBSCRIBE, UNSUBSCRIBE, PING (on a cluster of
// Redis 7 or newer SSUBSCRIBE, SUNSUBSCRIBE and PUBSUB SHARDNUMSUB; for go-redis CLUSTER SLOTS and ASKING), and
// inside scripts HGET, HMGET, HSET, HDEL, HLEN, HGETALL, RPUSH, EXISTS, DEL, PTTL, PEXPIRE, TYPE, GET, SET, INCRBY,
// TIME, PUBSUB NUMSUB, PUBLISH or SPUBLISH, and for permits HKEYS, HSCAN, PEXPIREAT, ZADD, ZREM, ZSCORE, ZCARD,
// ZCOUNT, ZRANGE, ZRANGEBYSCORE. Without the permission to publish, waiters of other strategies ask by themselves.
// Without BLPOP, waiters poll. KeyDB 6.3 gets no BLPOP: one can crash it.
//
// A key with permits is a hash, too. Beside it are locker:permits:{N}, a sorted set of the permits' ends, which goes with the
// last permit, and while somebody waits for permits locker:turns:{N}, a sorted set, and locker:places:{N}, a hash: the line. They
// expire five seconds after the last waiter.
package blpop
